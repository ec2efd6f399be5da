from __future__ import annotations

import pytest

from autotune.core.records import Config, Value
from autotune.core.results import Trial
from autotune.study.view import StudyView
from autotune.tuning.ablation import missing, steps
from tests.reporting import config, failed, measured, recommendation, trial, view

START: dict[str, Value] = {"batch_size": 64, "gradient_accumulation_steps": 16}
GOAL: dict[str, Value] = {"batch_size": 1024, "amp_dtype": "bfloat16", "num_workers": 12, "channels_last": True}
WORKERS, DTYPE, LAYOUT = {"num_workers": 12}, {"amp_dtype": "bfloat16"}, {"channels_last": True}
BATCH: dict[str, Value] = {"batch_size": 1024, "gradient_accumulation_steps": 1}


def at(*changes: dict[str, Value]) -> Config:
    """The baseline with those changes."""
    values = dict(START)
    for change in changes:
        values |= change
    return config(**values)  # type: ignore[arg-type]  # knob values by name


def study(*between: Config, **options: object) -> StudyView:
    """A study with baseline, recommendation, and probes of the configurations `between`."""
    configs = (at(), *between, config(**GOAL))  # type: ignore[arg-type]  # knob values by name
    trials = [trial(number, one, measured(100 + 10 * number)) for number, one in enumerate(configs)]
    return view((*trials, *options.get("also", ())), recommendation())  # type: ignore[misc]  # trials


def changes(study: StudyView) -> list[tuple[str, ...]]:
    return [step.changed for step in steps(study)]


def test_the_way_goes_one_change_at_a_time_where_each_was_measured() -> None:
    way = study(at(WORKERS, DTYPE), at(WORKERS), at(WORKERS, DTYPE, LAYOUT))

    assert changes(way) == [
        (),
        ("num_workers",),
        ("amp_dtype",),
        ("channels_last",),
        ("batch_size", "gradient_accumulation_steps"),
    ]
    assert [step.changes for step in steps(way)] == [0, 1, 1, 1, 1]
    assert missing(way) == ()


def test_changes_that_were_measured_only_together_stay_together() -> None:
    way = study(at(WORKERS))

    assert [step.changes for step in steps(way)] == [0, 1, 3]
    assert [one.summary.samples_per_second for one in steps(way)] == pytest.approx([100, 110, 120])


def test_of_several_ways_the_longest_is_taken() -> None:
    way = study(at(DTYPE, LAYOUT), at(WORKERS), at(WORKERS, DTYPE))

    assert [step.changes for step in steps(way)] == [0, 1, 1, 2]


def test_a_configuration_off_the_way_or_unusable_is_no_step() -> None:
    beyond = trial(8, at(WORKERS), measured(500, 79 * 2**30))
    off = trial(9, at(WORKERS, {"batch_size": 128, "gradient_accumulation_steps": 8}), measured(500))

    assert [step.changes for step in steps(study(also=(beyond, off)))] == [0, 4]


def test_missing_lists_what_would_split_the_joint_steps_with_the_batch_last() -> None:
    assert missing(study(at(WORKERS))) == (at(WORKERS, DTYPE), at(WORKERS, DTYPE, LAYOUT))
    assert missing(study()) == (at(DTYPE), at(DTYPE, WORKERS), at(DTYPE, WORKERS, LAYOUT))


def test_what_failed_already_is_not_asked_for_again() -> None:
    exhausted: tuple[Trial, ...] = (trial(9, at(WORKERS, DTYPE), failed()),)

    assert missing(study(at(WORKERS), also=exhausted)) == (at(WORKERS, DTYPE, LAYOUT),)


def test_what_was_measured_and_may_not_be_used_is_not_asked_for_again() -> None:
    beyond: tuple[Trial, ...] = (trial(9, at(WORKERS, DTYPE), measured(500, 79 * 2**30)),)

    assert missing(study(at(WORKERS), also=beyond)) == (at(WORKERS, DTYPE, LAYOUT),)


def test_without_a_recommendation_or_a_baseline_that_runs_there_is_no_way() -> None:
    goal = trial(1, config(**GOAL), measured(100))  # type: ignore[arg-type]  # knob values by name

    assert steps(view((trial(0, at(), measured(9)), goal))) == ()
    assert steps(view((trial(0, at(), failed()), goal), recommendation())) == ()
    assert steps(view((trial(0, at(), measured(9)),), recommendation(params=at().values, baseline=at().values))) == ()
