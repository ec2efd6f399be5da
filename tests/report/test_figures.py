from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.records import Goal
from autotune.core.results import IsolatedTiming, Outcome
from autotune.precision.chart import paired_losses, precision
from autotune.precision.records import PrecisionCheckResult
from autotune.report.bottleneck import bottleneck
from autotune.report.changes import changes_of, worth, worth_lines
from autotune.report.chart import Absence, Chart
from autotune.report.finalists_chart import FASTER, SHIFTED, finalists
from autotune.report.history_chart import history
from autotune.report.knob_values_chart import knob_values_chart
from autotune.report.step_chart import step
from autotune.study.recommendation import Change
from autotune.study.view import load_view, summaries
from tests.reporting import (
    FACTS,
    config,
    confirmed,
    failed,
    ladder,
    measured,
    paired,
    recommendation,
    trial,
    view,
    whole,
)
from tests.worlds import earlier


def shown(chart: Chart | Absence) -> Chart:
    assert isinstance(chart, Chart), chart
    ElementTree.fromstring(chart.svg())
    return chart


def test_one_step_is_told_as_today_and_as_recommended_in_times_that_divide_to_the_factor() -> None:
    chart = shown(step(confirmed(ladder())))

    assert [row[:4] for row in chart.table.rows] == [
        ("today", "64×16 fp32 workers 0 nchw", "6.74 s", "9%"),
        ("recommended", "1024×1 bf16 workers 12 nhwc", "439 ms", "1%"),
    ]
    assert chart.title == "One optimizer step of 1,024 samples"
    assert chart.takeaway == "computing is the bottleneck: 99% of a step, waiting for data 1%"


def test_while_there_is_no_answer_the_step_of_the_fastest_so_far_is_told() -> None:
    chart = shown(step(view(ladder()[:9])))

    assert [row[0] for row in chart.table.rows] == ["today", "fastest so far"]


def test_while_the_rounds_run_the_step_stays_that_of_the_best_so_far() -> None:
    rounds = ((ladder()[6].config, 208), (ladder()[0].config, 20))
    again = tuple(trial(40 + n, one, measured(rate), "confirm") for n, (one, rate) in enumerate(rounds))

    assert shown(step(view((*ladder(), *again)))).table == shown(step(view(ladder()))).table


def test_before_there_is_an_answer_a_step_has_the_samples_of_all_ranks() -> None:
    chart = shown(step(view(ladder()[:9], facts=msgspec.structs.replace(FACTS, ranks=2))))

    assert chart.title == "One optimizer step of 2,048 samples"


@pytest.mark.parametrize(("owns_loop", "why"), [(False, "the batches are synthetic"), (True, "there is no DataLoader")])
def test_without_a_loader_nothing_is_said_of_what_limits(owns_loop: bool, why: str) -> None:
    absence = step(view(ladder(), facts=msgspec.structs.replace(FACTS, data="batch", owns_loop=owns_loop)))

    assert isinstance(absence, Absence)
    assert why in absence.reason


# Shares of a step that wait, samples/s alone of model and loader beside 100 together, and what follows (page of a user
# whose 0 workers waited 24%: loading is done in turn with computing there, and 76% of the step computes).
LIMITS = {
    "little waits": (4, 0.05, 105, 400, "computing is the bottleneck: 95% of a step, waiting for data 5%"),
    "in turn, computing": (
        0, 0.24, 147, 700, "computing is the bottleneck: 76% of a step, waiting for data 24%; workers could overlap it"
    ),
    "in turn, loading": (
        0, 0.9, 900, 110, "loading is the bottleneck: waiting for data 90% of a step; workers could overlap it"
    ),
    "overlapped, loading": (
        8, 0.9, 900, 110,
        "loading is the bottleneck: waiting for data 90% of a step; without waiting about 10× as fast",
    ),
    "overlapped, both": (8, 0.4, 150, 160, "computing and loading share the cores: waiting for data 40% of a step"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_the_limit_follows_from_computing_alone_loading_alone_and_both_together(name: str) -> None:
    workers, wait, model, loader, said = LIMITS[name]
    halves: dict[str, Any] = {
        "compute_only": IsolatedTiming(seconds=(1.0, 1.0), samples=model),
        "loader_only": IsolatedTiming(seconds=(1.0, 1.0), samples=loader),
    }
    (one,) = summaries(view((trial(0, config(64, num_workers=workers), measured(100, wait=wait, **halves)),)))

    assert bottleneck(one, wait) == said


def test_a_rate_alone_below_the_rate_together_is_no_more_than_a_bound() -> None:
    halves: dict[str, Any] = {"loader_only": IsolatedTiming(seconds=(1.0, 1.0), samples=80)}
    chart = shown(step(view((trial(0, config(64, num_workers=4), measured(100, wait=0.9, **halves)),))))

    assert chart.table.rows[0][4:] == ("–", "at least 100")


def test_every_round_of_every_finalist_is_a_circle() -> None:
    study = confirmed(ladder())

    chart = shown(finalists(study))

    rounds = [node for node in ElementTree.fromstring(chart.svg()).iter() if node.get("class") == "round"]
    assert len(rounds) == 4
    assert [row[3:] for row in chart.table.rows] == [("15.33×"[:4] + "×", "2,310, 2,350"), ("1.00×", "150, 154")]
    assert isinstance(finalists(view(ladder(), recommendation())), Absence)


def test_of_many_finalists_the_baseline_is_drawn_and_those_left_out_are_counted() -> None:
    study = confirmed(ladder())
    best = study.recommendation
    assert best is not None
    others = tuple(
        msgspec.structs.replace(best.confirmations[0], config=config(32, num_workers=count), samples_per_second=rate)
        for count, rate in enumerate(range(2000, 2010), 1)
    )
    crowd = msgspec.structs.replace(best, confirmations=(*best.confirmations, *others))

    chart = shown(finalists(dataclasses.replace(study, recommendation=crowd)))

    assert "baseline" in chart.svg() and "recommended" in chart.svg()
    assert len(chart.table.rows) == 12 and "4 slower ones more" in chart.note


def test_on_a_phone_what_a_finalist_is_stays_whole() -> None:
    study = confirmed(ladder())

    root = ElementTree.fromstring(shown(finalists(study)).narrow)
    told = [str(node.text) for node in root.iter() if node.tag.endswith("}text")]

    assert [name.rpartition(" · ")[2] for name in told if " · " in name] == ["recommended", "baseline"]


def test_a_faster_finalist_that_was_not_chosen_is_explained_and_only_where_there_is_one() -> None:
    faster, fastest = (
        load_view(Path(__file__).parents[2] / "studies" / it) for it in ("slow_loader-xeon", "train-epyc")
    )

    assert FASTER in shown(finalists(faster)).note
    assert FASTER not in shown(finalists(fastest)).note


def test_means_that_are_not_of_the_own_rounds_are_explained_and_only_those() -> None:
    late = load_view(Path(__file__).parents[2] / "studies" / "train-epyc")

    assert SHIFTED in shown(finalists(late)).note
    assert SHIFTED not in shown(finalists(confirmed(ladder()))).note


def test_the_history_explains_only_what_it_draws() -> None:
    plain, rounds = shown(history(view(ladder()[:7]))), shown(history(confirmed(ladder())))

    line = "Line: the fastest usable probe of the search so far."
    assert (plain.takeaway, plain.note) == ("7 probes, 49 s of probing", line)
    assert "not usable" in rounds.takeaway
    assert "shaded" in rounds.note and "✕" in rounds.note


def test_the_best_so_far_is_that_of_the_search_and_never_falls() -> None:
    chart = shown(history(confirmed(ladder())))

    rates = [float(row[0].replace(",", "")) for row in chart.table.rows]
    assert rates == sorted(rates)
    assert rates[0] == 152 and rates[-1] == 2330
    crosses = [node for node in ElementTree.fromstring(chart.svg()).iter() if node.get("class") == "cross"]
    assert len(crosses) == sum(not view().verdict(one).feasible for one in ladder())


def test_numerics_draws_each_dtype_and_tells_the_verdict_as_the_answer_does() -> None:
    chart = shown(paired_losses([paired()], tolerance=0.02))

    assert chart.table.rows[0][:2] == ("bf16", "ok")
    assert chart.takeaway == "bf16 matches fp32: less than 0.1% apart after 50 paired steps"


def test_the_precision_chart_draws_differences_within_and_beyond_what_is_allowed() -> None:
    within, beyond = (shown(paired_losses([paired(worse=worse)], tolerance=0.02)) for worse in (0.0, 0.5))

    assert _within_the_band(within.svg())
    assert not _within_the_band(beyond.svg())


def _within_the_band(svg: str) -> bool:
    """Whether all points of the tested precision lie in the grey of what is allowed."""
    nodes = list(ElementTree.fromstring(svg).iter())
    band = next(node for node in nodes if node.get("class") == "band")
    top = float(band.get("y", ""))
    line = next(node for node in nodes if node.get("class") == "line").get("d", "")
    return all(top <= float(y) <= top + float(band.get("height", "")) for y in line[1:].split()[1::2])


def test_a_dtype_that_learns_less_or_breaks_is_called_so() -> None:
    behind = shown(paired_losses([paired(worse=0.5)], tolerance=0.02))
    broken = shown(paired_losses([paired(broken_from=30)], tolerance=0.02))

    assert behind.table.rows[0][1] == "worse"
    assert broken.table.rows[0][1] == "unstable"
    crosses = [node for node in ElementTree.fromstring(broken.svg()).iter() if node.get("class") == "cross"]
    assert len(crosses) == 1


def test_numerics_tells_why_a_comparison_failed_or_that_there_was_none() -> None:
    asked, _ = paired()
    failure = failed().failure
    lost = PrecisionCheckResult(outcome=Outcome.OOM_DEVICE, failure=failure)

    absence = paired_losses([(asked, lost)], tolerance=0.02)

    assert isinstance(absence, Absence)
    assert absence.reason.startswith("bf16 could not be compared with fp32: tried to allocate 2 GiB")
    assert isinstance(precision(view(ladder())), Absence)


NAMES = {
    "amp_dtype": ("bfloat16", None), "num_workers": (12, 0), "channels_last": (True, False),
    "activation_checkpointing": (True, False),
}  # fmt: skip


DOMAINS = {
    "batch_size": (64, 1024), "gradient_accumulation_steps": (1, 16), "amp_dtype": (None, "bfloat16"),
    "num_workers": (0, 12), "channels_last": (False, True), "activation_checkpointing": (False, True),
}  # fmt: skip


def change(name: str, **known: Any) -> Change:
    now, before = NAMES[name]
    return Change(**{"values": {name: now}, "before": {name: before}, "kept": True, **known})


def test_the_changes_are_told_with_their_factor_and_the_dropped_ones_last() -> None:
    changes = (
        change("channels_last", kept=False, ratio=0.995, ratio_low=0.985, ratio_high=1.01),
        change("amp_dtype", ratio=0.65, ratio_low=0.63, ratio_high=0.67),
        change("num_workers", untested=notice(Code.CHANGE_WITHOUT_TIME)),
        change("activation_checkpointing", untested=notice(Code.CHANGE_WITHOUT_TIME), ratio=0.8),
    )

    assert worth_lines(recommendation(changes=changes), None) == [
        "precision fp32 → bf16: 1.54× faster (1.49 to 1.59)",
        "workers 0 → 12: not measured: no time was left",
        "checkpointing no → ckpt: 1.25×, single probes",
        "dropped: layout nchw → nhwc: 1.01×, does nothing here (0.99 to 1.02)",
    ]


def only(changed: Change, **answer: Any) -> str:
    best = recommendation(changes=(changed,), **answer)
    (told,) = changes_of(best, None)
    return worth(told, best)


def test_what_a_change_is_worth_is_told_in_the_words_of_the_objective() -> None:
    saved = change("amp_dtype", ratio=1.03, ratio_low=1.025, ratio_high=1.04, memory_ratio=1.4)

    told = [only(saved, goal=Goal(objective=name)) for name in ("throughput", "memory")]

    assert told == ["0.97×, slower (0.96 to 0.98)", "0.97×, slower (0.96 to 0.98), 29% less memory"]


def test_memory_that_does_not_change_is_not_told_as_nothing_percent() -> None:
    same = change("num_workers", ratio=0.5, ratio_low=0.49, ratio_high=0.51, memory_ratio=1.001)

    assert only(same, goal=Goal(objective="memory")) == "2.00× faster (1.96 to 2.04)"


def test_every_setting_has_a_row_of_the_table_and_what_was_measured_a_place_in_the_chart() -> None:
    changes = (
        change("channels_last", ratio=0.8, ratio_low=0.7, ratio_high=0.9),
        change("amp_dtype", ratio=0.65, ratio_low=0.63, ratio_high=0.67),
    )
    trials = (trial(0, config(**recommendation().baseline), measured(152), "baseline"),)
    study = view(trials, recommendation(changes=changes))
    object.__setattr__(study, "request", msgspec.structs.replace(study.request, domains=DOMAINS))

    chart = shown(knob_values_chart(study))

    assert [row[:2] for row in chart.table.rows] == [
        ("batch 64×16 → 1024×1", "not measured"),
        ("precision fp32 → bf16", "1.54× faster (1.49 to 1.59)"),
        ("workers 0 → 12", "not measured"),
        ("layout nchw → nhwc", "1.25× faster (1.11 to 1.43)"),
        ("checkpointing ckpt instead of no", "not measured"),
    ]
    assert chart.table.rows[1][2:] == ("", "interleaved rounds")
    assert chart.summary == (
        "precision fp32 → bf16: 1.54× faster (1.49 to 1.59); layout nchw → nhwc: 1.25× faster (1.11 to 1.43)"
    )
    assert "Not measured: batch, workers, checkpointing. `autotune explain" in chart.note


def test_an_estimate_and_single_probes_are_hollow_and_words_say_what_they_are() -> None:
    best = recommendation()
    crossed = [
        trial(number, config(64, amp_dtype=amp, channels_last=layout, num_workers=workers), measured(rate))
        for number, (amp, layout, workers, rate) in enumerate([
            (None, False, 0, 100), ("bfloat16", False, 0, 200), (None, True, 0, 150), ("bfloat16", True, 0, 300),
            (None, False, 12, 200), ("bfloat16", False, 12, 400), (None, True, 12, 300),
        ])
    ]  # fmt: skip
    study = view((*crossed, trial(9, config(**best.params), measured(600))), best)

    chart = shown(knob_values_chart(study))

    assert "precision fp32 → bf16: estimated " in chart.summary
    assert "whisker dashed" in chart.svg() and "dot hollow" in chart.svg()


def test_a_study_of_an_earlier_version_shows_what_was_measured_alone_and_says_so_of_the_rest() -> None:
    best = recommendation()
    fp32 = trial(40, config(**{**best.params, "amp_dtype": None}), measured(600, half_width=0.01))
    noisy = trial(41, config(**{**best.params, "channels_last": False}), measured(2320, half_width=0.05))
    own = trial(42, config(**best.params), measured(2330, half_width=0.01))

    told = changes_of(best, view((*ladder()[:1], fp32, noisy, own), best))

    assert [worth(one, best) for one in told] == [
        "not measured",
        "3.88× faster (3.61 to 4.16), single probes",
        "not measured",
        "1.00×, not significant (0.93 to 1.08), single probes",
    ]


def test_a_hostile_reason_does_not_reach_the_terminal() -> None:
    text = only(change("amp_dtype", untested=earlier("\x1b[2Jno"), reason=earlier("\x1b[2Jfaults")))

    assert "\x1b" not in text


def test_what_is_kept_although_rounds_do_not_show_its_gain_is_told_with_the_reason() -> None:
    spared = notice(Code.CHANGE_SPARES_FAULTS, share=0.08)

    unsure, untested = (
        only(change("channels_last", reason=spared, **more))
        for more in ({"ratio": 1.0, "ratio_low": 0.9, "ratio_high": 1.1}, {"untested": earlier("no time was left")})
    )

    assert unsure == "1.00×, not significant (0.91 to 1.11); spares page faults, 8% of a step"
    assert untested == "not measured: no time was left; spares page faults, 8% of a step"


@pytest.mark.parametrize("draw", [step, history])
def test_charts_of_a_whole_study_are_well_formed(draw: Any) -> None:
    shown(draw(view(whole(), recommendation())))


def test_the_worth_of_a_change_compares_rounds_with_rounds_and_never_with_a_single_probe() -> None:
    study = confirmed(ladder())
    best = study.recommendation
    assert best is not None
    lucky = trial(60, config(**{**best.params, "channels_last": False}), measured(2600))

    (told,) = [
        worth(one, best)
        for one in changes_of(best, dataclasses.replace(study, trials=(*study.trials, lucky)))
        if "channels_last" in one.values
    ]

    assert told == "1.17×, single probes"  # over the lucky one, of the answer's own probe in the search
