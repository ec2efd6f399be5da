"""The process that supervises ranks: when a first failure becomes a verdict."""

from __future__ import annotations

import os
import select
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.child.lifeline import Progress
from autotune.child.ranks import group
from autotune.core import codec
from autotune.core.requests import ProbeRequest
from autotune.core.results import Failure, Outcome
from autotune.launch.base import RESULT
from tests.worlds import config


class Reports:
    """Stands for `select.poll` and the clock: ranks report at these seconds, and nothing else takes time."""

    def __init__(self, *seconds: float) -> None:
        self.now, self._due = 0.0, list(seconds)

    def register(self, pipe: int, events: int) -> None:
        """Listen to nothing."""

    def poll(self, milliseconds: float) -> None:
        """Wait for a report, at most so long."""
        self.now = min([self.now + milliseconds / 1000, *self._due])
        self._due = [one for one in self._due if one > self.now]


def test_the_verdict_comes_when_its_moment_is_over_and_not_a_look_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = Reports(0.0, 0.3)  # rank 1 fails, and a step of rank 0 arrives later
    monkeypatch.setattr(group, "time", SimpleNamespace(monotonic=lambda: reports.now))
    monkeypatch.setattr(group, "select", SimpleNamespace(poll=lambda: reports, POLLIN=select.POLLIN))
    request = ProbeRequest(target="model.py", config=config(), device="cpu", ranks=2)
    ranks = [group.Rank(number, tmp_path, request) for number in range(2)]
    failure = Failure(phase="warm-up", message="ValueError: mine", evidence="ValueError")
    codec.write(ranks[1].folder / RESULT, request.failed(Outcome.USER_ERROR, failure))

    processes = SimpleNamespace(are_over=lambda: False)
    result = group._Group(request, ranks, processes, Progress(None)).until_measured()  # type: ignore[arg-type]

    assert result.failure is not None and result.failure.message == "rank 1 of 2: ValueError: mine"
    assert reports.now == pytest.approx(group.SETTLE_SECONDS)
    for one in ranks:
        os.close(one.pipe)
