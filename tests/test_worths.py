"""What is missing on the way to the recommendation is probed after the answer, and never costs it."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import EnvironmentUnfit
from autotune.guard import Guard
from autotune.records import Config
from autotune.results import ProbeResult, Trial, Verdict
from autotune.testing import FakeLauncher
from autotune.tuning.view import load_view
from autotune.tuning.worth import steps
from autotune.tuning.worths import measure
from tests.reporting import config, failed, measured, recommendation, trial, view, written
from tests.worlds import Interrupted, Listener, declared, searched, space

BEST = recommendation()
ENDS = (
    trial(0, config(**BEST.baseline), measured(152), "baseline"),
    trial(1, config(**BEST.params), measured(2330)),
)
LONG = 1e6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study that probed nothing between its baseline and its recommendation."""
    return written(tmp_path / "study", ENDS, BEST).folder


class Prober:
    """Answers every probe with the same result, and remembers it."""

    def __init__(self, result: ProbeResult) -> None:
        self.trials: list[Trial] = []
        self._numbers: Iterator[int] = count(len(ENDS))
        self._result = result

    def __call__(self, chosen: Config) -> tuple[Trial, Verdict]:
        self.trials.append(trial(next(self._numbers), chosen, self._result, "worth"))
        return self.trials[-1], view(tuple(self.trials)).verdict(self.trials[-1])


def ran(folder: Path, probe: Callable[[Config], Any], guard: Guard | None = None, times: int = 99) -> list[str]:
    """What was said; there is time for so many probes."""
    listener, left = Listener(), iter(range(times))
    measure(folder, guard or Guard(space()), listener, probe, lambda: next(left, None) is not None)
    return listener.notes


def test_what_lies_between_is_probed_one_change_at_a_time(folder: Path) -> None:
    prober = Prober(measured(600))

    (note,) = ran(folder, prober)

    changes = [step.changes for step in steps(view((*ENDS, *prober.trials), BEST))]
    assert changes == [0, 1, 1, 1, 1]
    assert "3 more probes at most" in note


def test_without_time_nothing_is_probed_and_nothing_said(folder: Path) -> None:
    assert ran(folder, Prober(measured(600)), times=0) == []


def test_it_ends_when_the_time_does(folder: Path) -> None:
    prober = Prober(measured(600))

    ran(folder, prober, times=3)  # one question before it speaks, one before each probe

    assert len(prober.trials) == 2


def test_what_would_run_out_of_memory_is_not_tried(folder: Path) -> None:
    guard, prober = Guard(space()), Prober(measured(600))
    guard.learn(trial(2, config(32, gradient_accumulation_steps=1, amp_dtype="bfloat16"), failed()))

    ran(folder, prober, guard)

    assert [one.config["channels_last"] for one in prober.trials] == [True]  # another layout, of which nothing is known


@pytest.mark.parametrize(("fault", "said"), [(KeyboardInterrupt(), "Interrupted"), (EnvironmentUnfit("No GPU."), "No")])
def test_whatever_stops_it_the_recommendation_stands(folder: Path, fault: BaseException, said: str) -> None:
    def probe(chosen: Config) -> Any:
        raise fault

    notes = ran(folder, probe)

    assert "recommendation stands" in notes[-1] and said in notes[-1]


@pytest.mark.parametrize(("rate", "surprises"), [(2330 * 1.01, 0), (2330 * 1.05, 3)])
def test_a_step_that_is_faster_than_where_it_leads_is_said(folder: Path, rate: float, surprises: int) -> None:
    notes = ran(folder, Prober(measured(rate)))

    assert sum("perhaps faster than the recommendation" in note for note in notes) == surprises


def test_after_a_search_every_step_is_one_change(tmp_path: Path) -> None:
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, probes=6, time_budget_seconds=LONG)

    study = load_view(tmp_path)
    purposes = [one.purpose for one in study.trials]
    assert "worth" in purposes and purposes == sorted(purposes, key=lambda purpose: purpose == "worth")
    assert all(step.changes == 1 for step in steps(study)[1:])
    assert answer == study.recommendation and answer.probes == len(study.trials)


def test_ctrl_c_among_the_steps_leaves_the_answer_and_a_resume_learns_from_them(tmp_path: Path) -> None:
    whole, cut, again = Listener(), Listener(), Listener()
    searched(tmp_path / "whole", FakeLauncher(facts=declared()), whole, probes=6, time_budget_seconds=LONG)
    first = [one.purpose for one in whole.trials].index("worth")

    launcher = Interrupted(first + 2, facts=declared())
    answer = searched(tmp_path / "cut", launcher, cut, probes=6, time_budget_seconds=LONG)
    searched(tmp_path / "cut", FakeLauncher(facts=declared()), again, probes=3, time_budget_seconds=LONG)

    assert cut.answer == answer and cut.stopped is None
    assert [one.purpose for one in cut.trials].count("worth") == 1
    known = {one.config for one in cut.trials}
    assert not known & {one.config for one in again.trials if one.purpose in ("search", "worth")}
