from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from autotune.core.records import Goal
from autotune.core.results import Alone, Outcome, StabilityResult
from autotune.precision.chart import paired_losses, precision
from autotune.report.changes import changes_chart, worth
from autotune.report.chart import Absence, Chart
from autotune.report.loading import loading
from autotune.study.recommendation import Change
from tests.reporting import FACTS, config, failed, ladder, measured, paired, recommendation, trial, view, whole


def shown(chart: Chart | Absence) -> Chart:
    assert isinstance(chart, Chart), chart
    ElementTree.fromstring(chart.svg())
    return chart


def test_loading_tells_together_and_apart_by_workers() -> None:
    halves: dict[str, Any] = {
        "compute_only": Alone(seconds=(1.0, 1.0), samples=500),
        "loader_only": Alone(seconds=(1.0, 1.0), samples=120),
    }
    trials = (
        trial(0, config(64, num_workers=0), measured(100, wait=0.8)),
        trial(1, config(64, num_workers=4), measured(110, wait=0.7, **halves)),
        trial(2, config(128, num_workers=4), measured(90, wait=0.1)),
        trial(3, config(256, num_workers=4), measured(900, 79 * 2**30)),  # faster, and more than may be used
    )

    chart = shown(loading(view(trials)))

    assert chart.table.rows == (
        ("0", "64×1 fp32 workers 0 nchw", "100", "–", "–", "80%"),
        ("4", "64×1 fp32 workers 4 nchw", "110", "500", "120", "70%"),
    )
    assert "not timed apart" not in chart.note


def test_loading_says_when_the_halves_were_not_timed_or_there_is_no_loader() -> None:
    synthetic = msgspec.structs.replace(FACTS, data="batch")

    assert "not timed apart" in shown(loading(view(ladder()))).note
    absence = loading(view(ladder(), facts=synthetic))
    assert isinstance(absence, Absence)
    assert "no loader" in absence.reason


def test_numerics_draws_each_dtype_and_repeats_the_verdict() -> None:
    chart = shown(paired_losses([paired()], tolerance=0.02))

    assert chart.table.rows[0][:2] == ("bf16", "ok")
    assert "bf16 loss matches fp32" in chart.note


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
    lost = StabilityResult(outcome=Outcome.OOM_DEVICE, failure=failure)

    absence = paired_losses([(asked, lost)], tolerance=0.02)

    assert isinstance(absence, Absence)
    assert absence.reason == "bf16: tried to allocate 2 GiB"
    assert isinstance(precision(view(ladder())), Absence)


NAMES = {
    "amp_dtype": ("bfloat16", None), "num_workers": (12, 0), "channels_last": (True, False),
    "activation_checkpointing": (True, False),
}  # fmt: skip


def change(name: str, **known: Any) -> Change:
    now, before = NAMES[name]
    return Change(**{"values": {name: now}, "before": {name: before}, "kept": True, **known})


def test_the_changes_are_told_with_what_is_left_without_each_and_the_dropped_ones_last() -> None:
    changes = (
        change("channels_last", kept=False, ratio=0.995, ratio_low=0.98, ratio_high=1.01),
        change("amp_dtype", ratio=0.65, ratio_low=0.63, ratio_high=0.67),
        change("num_workers", untested="no time was left"),
        change("activation_checkpointing", untested="no time was left", ratio=0.8),
    )

    chart = shown(changes_chart(view(ladder(), recommendation(changes=changes))))

    assert chart.table.rows == (
        ("precision fp32 → bf16", "recommended", "without it 35% slower", "0.65", "0.63 to 0.67"),
        ("workers 0 → 12", "recommended", "not tested: no time was left", "", ""),
        (
            "recompute no → ckpt",
            "recommended",
            "without it 20% slower, by single probes",
            "0.80",
            "",
        ),
        ("layout nchw → nhwc", "dropped", "without it 0.5% slower (not significant)", "0.99", "0.98 to 1.01"),
    )


def test_what_a_change_is_worth_is_told_in_the_words_of_the_objective() -> None:
    saved = change("amp_dtype", ratio=1.03, ratio_low=1.02, ratio_high=1.04, memory_ratio=1.4)

    told = [worth(saved, recommendation(goal=Goal(objective=name))) for name in ("throughput", "memory")]

    assert told == ["without it 3% faster", "without it 3% faster, 40% more memory"]


def test_a_study_of_an_earlier_version_shows_what_was_measured_alone_and_says_so_of_the_rest() -> None:
    best = recommendation()
    fp32 = trial(40, config(**{**best.params, "amp_dtype": None}), measured(600, half_width=0.01))
    noisy = trial(41, config(**{**best.params, "channels_last": False}), measured(2320, half_width=0.05))
    own = trial(42, config(**best.params), measured(2330, half_width=0.01))

    chart = shown(changes_chart(view((*ladder()[:1], fp32, noisy, own), best)))

    assert [row[2] for row in chart.table.rows] == [
        "not measured alone",
        "without it 74% slower",
        "not measured alone",
        "without it 0.4% slower (not significant)",
    ]


def test_a_hostile_reason_does_not_reach_the_terminal() -> None:
    hostile = change("amp_dtype", untested="\x1b[2Jno")

    text = worth(hostile, recommendation(changes=(hostile,)))

    assert "\x1b" not in text


@pytest.mark.parametrize("draw", [changes_chart, loading])
def test_charts_of_a_whole_study_are_well_formed(draw: Any) -> None:
    shown(draw(view(whole(), recommendation())))
