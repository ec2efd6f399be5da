"""What is missing on the way to the recommendation is probed after the answer, and never costs it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from autotune.core.results import ProbeResult, Trial, Verdict
from autotune.errors import EnvironmentUnfit
from autotune.study import layout as disk
from autotune.study.view import load_view
from autotune.testing import FakeLauncher
from autotune.tuning.ablation import ablate, steps
from autotune.tuning.budget import TimeBudget
from tests.reporting import config, failed, measured, recommendation, trial, view
from tests.worlds import Interrupted, Listener, context, declared, searched

BEST = recommendation()
MINUTE = 60.0
ENDS = (
    trial(0, config(**BEST.baseline), replace(measured(152), elapsed_seconds=MINUTE), "baseline"),
    trial(1, config(**BEST.params), replace(measured(2330), elapsed_seconds=MINUTE)),
)
LONG = 1e6


class Scripted(FakeLauncher):
    """Answers every probe with the same result, one second later, and remembers it."""

    def __init__(self, answer: ProbeResult | BaseException) -> None:
        super().__init__()
        self.trials: list[Trial] = []
        self._answer = replace(answer, elapsed_seconds=MINUTE) if isinstance(answer, ProbeResult) else answer

    def run(self, request: Any, folder: Path) -> Any:
        if isinstance(self._answer, BaseException):
            raise self._answer
        self.trials.append(trial(request.number, request.config, self._answer, request.purpose))
        return self._answer


class Ignored:
    """A database that keeps nothing."""

    def add(self, trial: Trial, verdict: Verdict) -> None:
        pass


def ran(folder: Path, launcher: Scripted, *, exhausted: Sequence[Trial] = (), times: int = 99) -> list[str]:
    """What was said after the answer; there is time for so many probes."""
    listener = Listener()
    for number in range(len(ENDS)):
        disk.make(folder / disk.PROBES / f"{number:04d}")
    search = context(folder, launcher, listener, trials=ENDS, request=view(ENDS).request)
    one = search.history.expected_seconds(search.budget.window)
    budget = TimeBudget(search.history, (times + 0.5) * one, lambda: one * len(launcher.trials), 0.0)
    for known in exhausted:
        search.guard.learn(known)
    ablate(dataclasses.replace(search, budget=budget, store=Ignored()), BEST)
    return listener.notes


def test_what_lies_between_is_probed_one_change_at_a_time(tmp_path: Path) -> None:
    launcher = Scripted(measured(600))

    (note,) = ran(tmp_path, launcher)

    changes = [step.changes for step in steps(view((*ENDS, *launcher.trials), BEST))]
    assert changes == [0, 1, 1, 1, 1]
    assert "at most 3 more probes" in note


def test_without_time_nothing_is_probed_and_nothing_said(tmp_path: Path) -> None:
    assert ran(tmp_path, Scripted(measured(600)), times=0) == []


def test_it_ends_when_the_time_does(tmp_path: Path) -> None:
    launcher = Scripted(measured(600))

    ran(tmp_path, launcher, times=2)

    assert len(launcher.trials) == 2


def test_what_would_run_out_of_memory_is_not_tried(tmp_path: Path) -> None:
    launcher = Scripted(measured(600))
    exhausted = trial(2, config(32, gradient_accumulation_steps=1, amp_dtype="bfloat16"), failed())

    ran(tmp_path, launcher, exhausted=[exhausted])

    assert [one.config["channels_last"] for one in launcher.trials] == [True]  # another layout, nothing is known of it


@pytest.mark.parametrize(("fault", "said"), [(KeyboardInterrupt(), "Interrupted"), (EnvironmentUnfit("No GPU."), "No")])
def test_whatever_stops_it_the_recommendation_stands(tmp_path: Path, fault: BaseException, said: str) -> None:
    notes = ran(tmp_path, Scripted(fault))

    assert "recommendation stands" in notes[-1] and said in notes[-1]


@pytest.mark.parametrize(("rate", "surprises"), [(2330 * 1.01, 0), (2330 * 1.05, 3)])
def test_a_step_that_is_faster_than_where_it_leads_is_said(tmp_path: Path, rate: float, surprises: int) -> None:
    notes = ran(tmp_path, Scripted(measured(rate)))

    assert sum("may be faster than the recommendation" in note for note in notes) == surprises


def test_after_a_search_every_step_is_one_change(tmp_path: Path) -> None:
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, probes=6, time_budget_seconds=LONG)

    study = load_view(tmp_path)
    purposes = [one.purpose for one in study.trials]
    assert "ablation" in purposes and purposes == sorted(purposes, key=lambda purpose: purpose == "ablation")
    assert all(step.changes == 1 for step in steps(study)[1:])
    assert answer == study.recommendation and answer.probes == len(study.trials)


def test_ctrl_c_among_the_steps_leaves_the_answer_and_a_resume_learns_from_them(tmp_path: Path) -> None:
    whole, cut, again = Listener(), Listener(), Listener()
    searched(tmp_path / "whole", FakeLauncher(facts=declared()), whole, probes=6, time_budget_seconds=LONG)
    first = [one.purpose for one in whole.trials].index("ablation")

    launcher = Interrupted(first + 2, facts=declared())
    answer = searched(tmp_path / "cut", launcher, cut, probes=6, time_budget_seconds=LONG)
    searched(tmp_path / "cut", FakeLauncher(facts=declared()), again, probes=3, time_budget_seconds=LONG)

    assert cut.answer == answer and cut.stopped is None
    assert [one.purpose for one in cut.trials].count("ablation") == 1
    known = {one.config for one in cut.trials}
    assert not known & {one.config for one in again.trials if one.purpose in ("search", "ablation")}
