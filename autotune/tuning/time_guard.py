"""The configurations that may be probed in the time left: what the sampler chooses among."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.core.records import Config
from autotune.sampler.guard import Admission
from autotune.tuning.budget import TimeBudget


class TimeGuard:
    """An admission that also refuses whose probe should not end in time, `within` so many seconds.

    Outside of it, time decides nothing: whoever asks what remains of the space is told of all that remains.
    """

    def __init__(self, admission: Admission, budget: TimeBudget) -> None:
        self._admission, self._budget = admission, budget
        self._seconds = math.inf
        self._shortest: tuple[tuple[Config, ...], float] = ((), math.inf)  # of what remained, seconds

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Admit only configurations whose shortest probe should end within so many seconds."""
        self._seconds = seconds
        try:
            yield
        finally:
            self._seconds = math.inf

    def admits(self, config: Config) -> bool:
        """Return whether a probe of `config` could teach anything, and should end in time."""
        return self._admission.admits(config) and (
            math.isinf(self._seconds) or self._budget.least_seconds(config) <= self._seconds
        )

    def remaining(self) -> tuple[Config, ...]:
        """Return every configuration that is still admitted; of a very large space as `SearchSpace.around` has them."""
        return tuple(config for config in self._admission.remaining() if self.admits(config))

    def shortest_probe_seconds(self) -> float:
        """Return the seconds of the shortest probe that is left; infinite if none is."""
        remaining = self._admission.remaining()
        if remaining is not self._shortest[0]:  # the same one tells that no probe has ended since
            self._shortest = remaining, min(map(self._budget.least_seconds, remaining), default=math.inf)
        return self._shortest[1]
