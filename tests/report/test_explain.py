"""What each setting is worth: by rounds where there are any, else by probes, else an estimate, else nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome
from autotune.report.explain import Evidence, Explanation, ValueWorth, explain
from autotune.report.explain_text import explain_block, notes, sentences_of, unmeasured
from autotune.report.gain import Gain, gain_phrase
from autotune.report.page import render
from autotune.report.value_effects import Effects
from autotune.study import disk
from autotune.study.recommendation import Change, Confirmation
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView
from tests.reporting import confirmed, measured, recommendation, trial, view, whole
from tests.worlds import config
from tests.worlds import good as feasible

DOMAINS = {
    "batch_size": (64, 1024), "gradient_accumulation_steps": (1, 16), "amp_dtype": (None, "bfloat16"),
    "num_workers": (0, 12), "channels_last": (False, True), "num_threads": (None, 1), "omp_wait_policy": (None,),
    "activation_checkpointing": (False, True),
}  # fmt: skip


def explained(study: StudyView) -> dict[str, ValueWorth]:
    best = study.recommendation
    assert best is not None
    deep = replace(study.request.facts, checkpointable_blocks=16)
    searched = replace(study.request, domains={**study.request.domains, **DOMAINS}, facts=deep)
    object.__setattr__(study, "request", searched)
    return {next(iter(one.values)): one for one in explain(study, best).worths}


def told(study: StudyView) -> str:
    best = study.recommendation
    assert best is not None
    return explain_block(explain(study, best), best, study, 100).plain


def changed(name: str, **known: Any) -> Change:
    best = recommendation()
    return Change(values={name: best.params[name]}, before={name: best.baseline[name]}, kept=True, **known)


def test_a_change_is_worth_what_its_rounds_say() -> None:
    one = changed("amp_dtype", ratio=0.5, ratio_low=0.4, ratio_high=0.625)

    found = explained(view(whole(), recommendation(changes=(one,))))["amp_dtype"]

    assert found.is_change
    assert found.inside == Gain(ratio=2.0, low=1.6, high=2.5, by="rounds")


def test_what_single_probes_say_is_called_so() -> None:
    best = recommendation()
    without = config(**{**best.params, "channels_last": False})
    trials = (
        trial(0, config(**best.baseline), measured(152), "baseline"),
        trial(1, config(**best.params), measured(2000)),
        trial(2, without, measured(1000)),
    )

    found = explained(view(trials, best))["channels_last"]

    assert found.inside is not None
    assert (found.inside.ratio, found.inside.by) == (2.0, "probes")
    assert found.inside.low is not None
    assert found.inside.low < 1.9  # two probes differ by more than their windows show


def test_a_probe_of_a_quiet_minute_is_not_compared_with_rounds_beside_other_work() -> None:
    best = recommendation()
    without = config(**{**best.params, "channels_last": False})
    trials = (
        trial(0, config(**best.baseline), measured(152), "baseline"),
        trial(1, config(**best.params), measured(2000)),
        trial(2, without, measured(500), "ablation"),
    )

    found = explained(view(trials, best))["channels_last"]

    assert found.inside is None


def test_an_estimate_goes_by_the_probes_of_the_search_alone() -> None:
    best, busy = recommendation(), 0.25
    values = [
        {**best.params, "channels_last": nhwc, "num_threads": threads} for nhwc in (True, False) for threads in (1, 2)
    ]
    probes = tuple(trial(number, config(**one), measured(1000)) for number, one in enumerate(values))
    rounds = tuple(
        trial(10 + number, config(**one), measured(1000 * busy), "ablation") for number, one in enumerate(values[:2])
    )

    before, after = (Evidence(view(trials, best), best)._effects for trials in (probes, probes + rounds))

    assert after.between({"channels_last": True}, {"channels_last": False}) == before.between(
        {"channels_last": True}, {"channels_last": False}
    )


def test_what_was_never_probed_was_not_measured() -> None:
    study = view((trial(0, config(**recommendation().baseline), measured(152), "baseline"),), recommendation())

    found = explained(study)

    assert found["activation_checkpointing"].inside is None
    assert found["activation_checkpointing"].estimate is None
    assert "checkpointing  ckpt instead of no: not measured" in told(study)


def test_what_page_faults_ruled_out_says_so_with_their_share() -> None:
    best = recommendation()
    of_cpu = replace(best.environment, device="cpu", mallocs=("glibc",))
    probe = trial(0, config(**best.baseline), measured(152, page_faults=80_000), "baseline")
    study = view((probe,), best, environment=of_cpu, domains={"malloc": (None, "glibc")})

    text = " ".join(told(study).split())

    assert "malloc glibc instead of auto: not measured: page faults take 0.1% of a step, too little to gain" in text


def test_rounds_of_the_race_tell_a_single_change_with_their_interval() -> None:
    best = recommendation(params=config(64, gradient_accumulation_steps=16, amp_dtype="bfloat16").values, speedup=1.5,
                          speedup_low=1.4, speedup_high=1.6)  # fmt: skip

    found = explained(view(whole(), best))["amp_dtype"]

    assert found.inside == found.alone == Gain(ratio=1.5, low=1.4, high=1.6, by="rounds")


def test_all_who_ran_in_every_round_are_compared_by_them() -> None:
    study = confirmed(whole())
    best = study.recommendation
    assert best is not None
    other = replace(best.confirmations[1], config=config(**{**best.params, "channels_last": False}),
                    rounds=(1150.0, 1160.0))  # fmt: skip
    object.__setattr__(study, "recommendation", replace(best, rounds=2, confirmations=(*best.confirmations, other)))

    found = explained(study)["channels_last"].inside

    assert found is not None
    assert found.by == "rounds"
    assert found.ratio == pytest.approx(2.02, abs=0.02)


def test_rounds_are_known_no_better_than_the_windows_that_they_were_measured_in() -> None:
    def interval(half_width: float) -> tuple[float, float]:
        best = recommendation()
        without = config(**{**best.params, "channels_last": False})
        found = [(one, (rate, 1.01 * rate)) for one, rate in ((config(**best.params), 2000.0), (without, 1100.0))]
        trials = tuple(
            trial(10 * at + number, one, measured(rate, half_width=half_width), "confirm")
            for at, (one, rates) in enumerate(found) for number, rate in enumerate(rates)
        )  # fmt: skip
        confirmed = tuple(
            Confirmation(
                config=one,
                samples_per_second=rates[0],
                rounds=rates,
                trials=(10 * at, 10 * at + 1),
                peak_bytes=1,
                data_wait_share=0.0,
            )
            for at, (one, rates) in enumerate(found)
        )
        gain = explained(view(trials, replace(best, rounds=2, confirmations=confirmed)))["channels_last"].inside
        assert gain is not None and gain.low is not None and gain.high is not None
        return gain.low, gain.high

    assert interval(0.01)[0] > 1
    assert interval(1.0)[0] < 1


def test_two_values_that_train_in_the_same_way_do_nothing() -> None:
    best = recommendation(params=config(64, gradient_accumulation_steps=16, num_threads=1).values)
    study = view((), best, environment=replace(recommendation().environment, device="cpu", usable_cores=4))
    object.__setattr__(
        study,
        "request",
        replace(study.request, domains={"omp_wait_policy": (None, "passive"), "num_threads": (None, 1)}),
    )

    found = {next(iter(one.values)): one for one in explain(study, best).worths}

    assert found["omp_wait_policy"].is_same
    assert "omp_wait  passive instead of auto: does nothing here: both train in the same way" in told(study)
    assert found["omp_wait_policy"] not in unmeasured(Explanation(study="", worths=tuple(found.values())))


def test_a_value_that_failed_says_why() -> None:
    from tests.worlds import failed

    best = recommendation()
    study = view((trial(0, config(**{**best.params, "activation_checkpointing": True}), failed()),), best)

    found = explained(study)["activation_checkpointing"]

    assert found.failure
    assert "does not run" in told(study)


def hung_once(folder: Path, *others: Outcome) -> StudyView:
    """A study whose probe with checkpointing hung; `others` are how it ended in races of --measure."""
    from tests.worlds import failed

    best = recommendation()
    tried = config(**{**best.params, "activation_checkpointing": True})
    study = view((trial(0, tried, failed(Outcome.TIMEOUT, "no sign of life for 600 s")),), best)
    object.__setattr__(study, "folder", folder)
    for number, outcome in enumerate(others):
        place = folder / "explain" / f"{number + 1:03}" / "probes" / "0001"
        place.mkdir(parents=True)
        request = ProbeRequest(target="model.py", device="cpu", config=tried, number=1, purpose="confirm")
        codec.write(place / "request.json", request)
        codec.write(place / "result.json", failed(outcome, "took more than 20 s"))
    return study


def test_a_value_of_which_one_probe_hung_can_be_measured_again(tmp_path: Path) -> None:
    study = hung_once(tmp_path)

    found = explained(study)["activation_checkpointing"]

    text = " ".join(told(study).split())
    assert "not measured: 1 of 1 probe hung: no sign of life for 600 s; --measure tries it again" in text
    assert found.is_open
    worths = explain(study, study.recommendation or recommendation()).worths
    assert unmeasured(Explanation(study="", worths=worths))[-1] == found  # last, as it may hang again


def test_what_happened_when_it_was_tried_again_counts(tmp_path: Path) -> None:
    again, broken = hung_once(tmp_path / "again", Outcome.TIMEOUT), hung_once(tmp_path / "x", Outcome.USER_ERROR)

    assert explained(again)["activation_checkpointing"].failure == "2 of 2 probes hung: took more than 20 s"
    assert not explained(broken)["activation_checkpointing"].is_open
    assert "does not run: error in your code: took more than 20 s" in told(broken)


def test_what_was_measured_since_counts_more(tmp_path: Path) -> None:
    from autotune.races.records import RaceResult, Standing

    best = recommendation()
    study = view(whole(), best)
    object.__setattr__(study, "folder", tmp_path)
    first = Standing(
        label="it", target="model.py", commit="", target_digest="", config=config(**best.params),
        global_batch_size=1024,
        samples_per_second=100.0, relative_half_width=0.01, rounds=(100.0,), trials=(0,), ratio=None, ratio_low=None,
        ratio_high=None, verdict=None,
    )  # fmt: skip
    other = replace(first, config=config(**{**best.params, "activation_checkpointing": True}), ratio=0.7, ratio_low=0.6,
                    ratio_high=0.8, verdict="slower")  # fmt: skip
    race = RaceResult(
        folder="", standings=(first, other), tolerance=0.02, ended="decided", probes=2, with_interference=1,
        seconds=1.0,
        environment=best.environment, measured_at="",
    )  # fmt: skip
    place = tmp_path / "explain" / "001"
    place.mkdir(parents=True)
    codec.write(place / disk.RACE, race)

    found = explained(study)["activation_checkpointing"].inside

    assert found == Gain(ratio=0.7, low=0.6, high=0.8, by="rounds")
    assert (explain(study, best).probes, explain(study, best).with_interference) == (2, 1)
    assert "  !         1 of 2 probes of --measure had interference: " in told(study)
    assert " had interference: others used the machine" in render(study)


def worths_of(changed_gain: Gain, kept_gain: Gain | None = None, **measured_since: int) -> Explanation:
    """The recommendation's change of precision, and one thread instead of all, which it leaves alone."""
    change = ValueWorth(
        values={"amp_dtype": "bfloat16"}, against={"amp_dtype": None}, is_change=True, inside=changed_gain
    )
    kept = ValueWorth(values={"num_threads": 1}, against={"num_threads": None}, is_change=False, inside=kept_gain)
    return Explanation(study="studies/cnn", worths=(change, kept), **measured_since)


FASTER = Gain(ratio=28.8, low=8.28, high=99.9, by="rounds")
OPEN = Gain(ratio=0.97, low=0.28, high=3.36, by="rounds")
WORSE = Gain(ratio=0.5, low=0.4, high=0.6, by="rounds")


def test_what_measured_faster_than_the_recommendation_has_a_next_step() -> None:
    assert notes(worths_of(FASTER, FASTER), recommendation()) == [(
        "threads 1 instead of auto measured faster than what is recommended.",
        "To be sure: autotune race studies/cnn --config threads=1. If it is, search in a new --study with --fix "
        "threads=1.",
    )]  # fmt: skip


def test_a_change_that_measured_slower_than_the_baseline_has_one_too() -> None:
    first, *_ = notes(worths_of(WORSE), recommendation())

    assert first.meaning == "precision fp32, as in your baseline, measured faster than what is recommended."
    assert "--config amp=none" in first.next_step


def test_a_headline_that_no_line_below_supports_is_called_open() -> None:
    best = recommendation(speedup=5.31, speedup_low=4.21, speedup_high=6.7)

    (note,) = notes(worths_of(OPEN), best)

    assert note.meaning.startswith(
        "No change measured faster by itself, though together they did: 5.31× (4.21 to 6.70)."
    )
    assert note.next_step == "To be sure: autotune race studies/cnn --config amp=none."
    assert notes(worths_of(FASTER, OPEN), best) == []
    assert notes(worths_of(Gain(ratio=1, low=0.9, high=1.1, by="probes")), best) == []


def test_interference_with_what_was_measured_since_is_said_as_a_race_says_it() -> None:
    (note,) = notes(worths_of(FASTER, probes=12, with_interference=11), recommendation())

    assert note.meaning.startswith("11 of 12 probes of --measure had interference: others used the machine, ")
    assert "autotune explain studies/cnn --measure" in note.next_step
    assert notes(worths_of(FASTER, probes=12), recommendation()) == []


def test_an_estimate_needs_probes_that_tell_the_setting_from_others() -> None:
    def summary(rate: float, **values: Any) -> ConfigSummary:
        one = trial(0, config(64, **values), measured(rate))
        return ConfigSummary(config=one.config, trials=(one,), verdicts=(feasible(rate),))

    crossed = Effects([
        summary(100), summary(50, channels_last=True), summary(200, amp_dtype="bfloat16"),
        summary(100, amp_dtype="bfloat16", channels_last=True),
    ])  # fmt: skip
    confounded = Effects([summary(100), summary(200, amp_dtype="bfloat16", channels_last=True)])

    found = crossed.between({"amp_dtype": "bfloat16"}, {"amp_dtype": None})

    assert found is not None
    assert found.by == "estimate"
    assert found.low is not None
    assert found.low < 2.0 < found.ratio * 1.3  # drawn towards nothing by the prior
    assert confounded.between({"amp_dtype": "bfloat16"}, {"amp_dtype": None}) is None
    assert crossed.between({"num_workers": 2}, {"num_workers": 0}) is None


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (Gain(ratio=1.35, low=1.2, high=1.52, by="rounds"), "1.35× faster (1.20 to 1.52)"),
        (Gain(ratio=0.8, low=0.7, high=0.9, by="probes"), "0.80×, slower (0.70 to 0.90), single probes"),
        (Gain(ratio=1.0, low=0.99, high=1.01, by="rounds"), "1.00×, does nothing here (0.99 to 1.01)"),
        (Gain(ratio=1.1, low=0.9, high=1.3, by="rounds"), "1.10×, not significant (0.90 to 1.30)"),
        (Gain(ratio=1.1, low=None, high=None, by="rounds"), "1.10×"),
        (Gain(ratio=1.1, low=0.9, high=float("inf"), by="rounds"), "1.10×, not significant"),
        (Gain(ratio=1.03, low=0.9, high=1.2, by="estimate", count=4), "not measured; estimated 1.03× (0.90 to 1.20)"),
    ],
)
def test_every_answer_has_its_words(gain: Gain, words: str) -> None:
    assert gain_phrase(gain, recommendation().goal) == words


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 probe that differs in other settings too"), (4, "4 probes that differ in other")]
)
def test_an_estimate_says_what_it_rests_on(count: int, words: str) -> None:
    guess = Gain(ratio=1.03, low=0.9, high=1.2, by="estimate", count=count)
    one = ValueWorth(values={"tf32": True}, against={"tf32": False}, is_change=False, estimate=guess)

    (sentence,) = sentences_of(one, recommendation())

    assert f", by {words}" in sentence


def test_a_change_that_there_was_no_time_for_says_so() -> None:
    late = changed("channels_last", untested=notice(Code.CHANGE_WITHOUT_TIME))
    study = view((trial(0, config(**recommendation().baseline), measured(152), "baseline"),),
                 recommendation(changes=(late,)))  # fmt: skip

    assert explained(study)["channels_last"].untested == "no time was left"
    assert "layout         nchw → nhwc: not measured: no time was left" in told(study)
