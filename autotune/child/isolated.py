"""Computing and loading, each timed while the other rests: decides how long they are timed, and keeps the results.

The caller measures the times, so that they may include waiting for the device.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.requests import ProbeBudget
from autotune.core.results import IsolatedTiming
from autotune.targets.base import Step

COMPUTE_STEPS = 3  # of computing alone, if they take at most ISOLATED_PATIENCE times the required seconds
ISOLATED_PATIENCE = 2.0
# Turns of the workers, one batch of each: loading alone takes so many if there is time (docs/notes/timing.md 4).
LOADER_TURNS = 3
LEAST_LOADING = 0.1  # least share of its longest time: three turns of a fast loader would take only a millisecond
MOST_LOADER_TURNS = 30  # turns of a very fast loader


class Computing:
    """Optimizer steps on one batch. Meanwhile the workers fill their queue; on a CPU they compete at first."""

    def __init__(self, budget: ProbeBudget) -> None:
        self._budget = budget
        self._seconds: list[float] = []
        self._elapsed, self._samples = 0.0, 0

    @property
    def result(self) -> IsolatedTiming | None:
        """The seconds of computing alone; None: there was no such step."""
        return IsolatedTiming(seconds=tuple(self._seconds), samples=self._samples) if self._seconds else None

    def step(self, seconds: float, samples: int) -> bool:
        """Note a step or block; return whether it was the last needed. One is enough if it takes a second."""
        self._seconds.append(seconds)
        self._elapsed += seconds
        self._samples = samples
        few = len(self._seconds) < COMPUTE_STEPS
        return self._elapsed >= self._budget.max_compute_seconds * (ISOLATED_PATIENCE if few else 1.0)


class Loading:
    """Batches that are loaded and not trained on: first those that the workers held `ready`, then timed turns."""

    def __init__(self, budget: ProbeBudget, workers: int, ready: int) -> None:
        self._budget = budget
        self._batches_per_turn = max(workers, 1)
        self._ready = ready
        self._batches = self._samples = 0
        self._seconds: list[float] = []

    @property
    def result(self) -> IsolatedTiming | None:
        """The seconds of loading alone; None: no whole turn. If batches differ in size, their mean counts."""
        turns = self._batches // self._batches_per_turn
        if not turns:
            return None
        seconds = [
            sum(self._seconds[index * self._batches_per_turn : (index + 1) * self._batches_per_turn])
            for index in range(turns)
        ]
        return IsolatedTiming(
            seconds=tuple(seconds), samples=round(self._samples * self._batches_per_turn / self._batches)
        )

    @property
    def seconds_per_batch(self) -> float:
        """The mean seconds per batch over all timed turns; 0.0 before any was timed."""
        return sum(self._seconds) / len(self._seconds) if self._seconds else 0.0

    def epoch(self) -> None:
        """Note that the loader was started again: it holds no batches ready any more."""
        self._ready = 0

    def batch(self, seconds: float, samples: int) -> bool:
        """Note a batch and the seconds of waiting for it; return whether it was the last that is needed."""
        if self._ready > 0:
            self._ready -= 1
            return False
        self._seconds.append(seconds)
        self._batches += 1
        self._samples += samples
        if self._batches % self._batches_per_turn:
            return False
        elapsed, longest = sum(self._seconds), self._budget.max_loader_seconds
        turns = self._batches // self._batches_per_turn
        enough = turns >= LOADER_TURNS and elapsed >= LEAST_LOADING * longest
        return enough or turns >= MOST_LOADER_TURNS or elapsed >= longest


def in_turn(steps: Sequence[Step], seconds: Sequence[float]) -> tuple[IsolatedTiming, IsolatedTiming]:
    """Return computing and loading of steps that did one after the other, by how long each waited for its batches.

    Without workers a host never loads while it computes, so the two need not be timed separately.
    """
    samples = round(sum(step.samples for step in steps) / len(steps))
    waits = tuple(step.loader_wait_seconds for step in steps)
    computing = tuple(whole - wait for whole, wait in zip(seconds, waits, strict=True))
    return IsolatedTiming(seconds=computing, samples=samples), IsolatedTiming(seconds=waits, samples=samples)
