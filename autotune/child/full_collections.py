"""Python's full garbage collections while a probe trains, each of which takes as long as many steps."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from autotune.targets.base import Step


class FullCollections:
    """The full collections of a training, told apart from its steps and spread over those that bring one about.

    Each takes as long as many steps, and they come at even intervals: a window of a second may hold one or none, and
    its rate would be wrong by a third either way (docs/notes/timing.md 6). Outside of `watched` none is noticed.
    """

    def __init__(self) -> None:
        self._began = self._fresh = self._seconds = 0.0
        self._steps = 0
        self.while_loading = False  # one at least fell into a wait for batches, which makes the objects then
        self._ended_at: list[int] = []  # optimizer steps before the end of each

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take note of them until the end."""
        gc.callbacks.append(self._told)
        try:
            yield
        finally:
            with suppress(ValueError):  # the user's code may have emptied the list
                gc.callbacks.remove(self._told)

    @property
    def count(self) -> int:
        """In how many steps, or blocks of them, there was one."""
        return len(self._ended_at)

    @property
    def steps_apart(self) -> float:
        """How many optimizer steps lie between two; infinite where there was none.

        At first that is not known: what was built before the first step may have brought one about, or not.
        """
        if not self._ended_at:
            return math.inf
        first, last = self._ended_at[0], self._ended_at[-1]
        return max((last - first) / (self.count - 1) if self.count > 1 else first, self._steps - last)

    @property
    def seconds_per_step(self) -> float:
        """What they take of an optimizer step in the long run; 0.0 where there was none."""
        return self._seconds / max(self.count, 1) / self.steps_apart

    def step(self, step: Step) -> float:
        """Take note of the optimizer steps that are over. Return the seconds of them that full collections took."""
        self._steps += step.steps
        seconds = self.taken()
        if not seconds or step.paused_seconds:  # during an evaluation, whose seconds are no part of the step
            return 0.0
        self._seconds += seconds
        self._ended_at.append(self._steps)
        self.while_loading |= seconds < step.loader_wait_seconds
        return seconds

    def taken(self) -> float:
        """Return the seconds of those since the last look."""
        seconds, self._fresh = self._fresh, 0.0
        return seconds

    def _told(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] < 2:
            return
        now = time.perf_counter()
        if phase == "start":
            self._began = now
        else:
            self._fresh += now - self._began


def without_collecting(seconds: float, collected: float) -> float:
    """Return `seconds` without those of full collections; one that took longer than all of them was not in them."""
    return seconds - collected if collected < seconds else seconds
