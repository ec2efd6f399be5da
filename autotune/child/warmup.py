"""Decides online, after each step, whether training steps have become steady."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

import torch

from autotune.core.requests import ProbeBudget

STEADY_FRACTION = 0.9  # of the three steps before; medians of three within 10 % are steady (docs/notes/timing.md 3)
COMPARED_STEPS = 3
FEW_SHARE = 0.25  # of the longest window: if few steps fit into it, they settle in seconds (decisions/0046)
LEAST_SUCCESSES = 2  # the optimizer's state is allocated in step 1 and affects step 2 (docs/notes/memory.md 2)

Growth = Callable[[], tuple[int, ...]]  # counters that stop growing when set-up is over


class WarmUp:
    """Takes note of the first steps until they are worth measuring.

    Steps are worth measuring after as many steps, seconds and successful steps as asked for; when the median of the
    last three is no longer clearly below that of the three before; and when nothing was allocated or compiled during
    the last three. On recorded traces the best cut in hindsight lies at 0 to 9 steps (docs/notes/timing.md 3).
    """

    def __init__(self, budget: ProbeBudget, growth: Growth) -> None:
        self._budget, self._growth = budget, growth
        self._successes = 0
        self._counters: list[tuple[int, ...]] = []
        self._elapsed = self._first = 0.0  # seconds of all steps, and of the first
        self.seconds: list[float] = []
        self.spent_seconds = 0.0  # of long steps, without the first: the window gets less by as much

    def step(self, seconds: float, *, skipped: bool) -> bool:
        """Note a step; return whether it was the last that is needed.

        If steps do not become steady, warm-up ends after the seconds of the longest window. The first step does not
        count, because it may compile for a minute. If fewer than six steps fit into a quarter of the longest window,
        warm-up ends after that quarter if `_settled`: the noise of long steps is relatively small.
        """
        self._first = self._first if self.seconds else seconds
        self._elapsed += seconds
        self.seconds.append(seconds)
        self._counters.append(self._growth())
        self._successes += not skipped
        if self._successes < LEAST_SUCCESSES:
            return False
        later = self._elapsed - self._first
        if later > self._budget.max_seconds:
            return True
        if len(self.seconds) < 2 * COMPARED_STEPS and later >= FEW_SHARE * self._budget.max_seconds:
            self.spent_seconds = later if self._settled() else 0.0
            return self.spent_seconds > 0
        asked = len(self.seconds) >= self._budget.min_warmup_steps
        asked &= self._elapsed >= self._budget.min_warmup_seconds
        return asked and self._steady()

    def _settled(self) -> bool:
        """Return whether few long steps have settled: the last is not clearly faster than the second; no set-up."""
        return self.seconds[-1] >= STEADY_FRACTION * self.seconds[1] and self._unchanged(1)

    def _unchanged(self, steps: int) -> bool:
        return self._counters[-1] == self._counters[-1 - steps]

    def _steady(self) -> bool:
        before = self.seconds[-2 * COMPARED_STEPS : -COMPARED_STEPS]
        if len(before) < COMPARED_STEPS:
            return False
        faster = statistics.median(self.seconds[-COMPARED_STEPS:]) < STEADY_FRACTION * statistics.median(before)
        return not faster and self._unchanged(COMPARED_STEPS)


def growth_on(device: str) -> Growth:
    """Return a function that counts the caching allocator's segments on `device`, and the graphs that were compiled."""

    def read() -> tuple[int, ...]:
        segments = torch.cuda.memory_stats(device).get("num_device_alloc", 0) if device.startswith("cuda") else 0
        dynamo = sys.modules.get("torch._dynamo.utils")  # if it is not loaded, nothing was compiled
        graphs = dynamo.counters["stats"]["unique_graphs"] if dynamo else 0
        return segments, graphs

    return read
