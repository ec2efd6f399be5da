"""The configurations that may be probed in the time left: those that the sampler chooses from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.context.budget import TimeBudget
from autotune.core.records import Config
from autotune.core.run_length import training_share
from autotune.knobs import KNOBS
from autotune.sampler.guard import Admission
from autotune.study.history import History

# On a CPU, for the only one of three targets that gained (docs/notes/compiling.md 1): a run that gains from it is long.
POSSIBLE_SPEEDUP = 1 / 0.81


class TimeGuard:
    """An admission that also refuses a configuration whose probe would take longer than the seconds of `within`.

    Outside of `within` there is no time limit: `remaining` then returns all that the inner admission admits.
    """

    def __init__(self, admission: Admission, budget: TimeBudget, history: History) -> None:
        self._admission, self._budget, self._history = admission, budget, history
        self._seconds = math.inf
        self._shortest: tuple[tuple[Config, ...], float] = ((), math.inf)  # of the remaining ones, seconds

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Admit only configurations whose shortest probe is expected to end within so many seconds."""
        self._seconds = seconds
        try:
            yield
        finally:
            self._seconds = math.inf

    def admits(self, config: Config) -> bool:
        """Return whether a probe of `config` could teach anything, and is expected to end in time."""
        return self._admission.admits(config) and (
            math.isinf(self._seconds)
            or (self._budget.least_seconds(config) <= self._seconds and self.may_compile(config))
        )

    def may_compile(self, config: Config) -> bool:
        """Return whether there is time for what a probe of `config` would compile.

        On a CPU that time must be a small share of the time budget, or the planned run so long that compiling pays. If
        the user or the target named the knob, there always is.
        """
        seconds, request = self._history.times.compiling_seconds(config), self._history.request
        goal, facts = request.goal, request.facts
        said = {*request.limits, *(goal.tune or ())}
        if request.environment.device_kind != "cpu" or any(one.compiles and one.name in said for one in KNOBS):
            return True
        if seconds <= self._budget.compiling_seconds:
            return True
        rates = [m.samples_per_second for trial, _ in self._history.judged if (m := trial.result.measurement)]
        if goal.run_length is None or not rates:
            return False
        return training_share(goal.run_length, seconds, max(rates), facts.dataset_samples) * POSSIBLE_SPEEDUP > 1

    def remaining(self) -> tuple[Config, ...]:
        """Return all configurations that are still admitted; of a very large space those of `SearchSpace.around`."""
        return tuple(config for config in self._admission.remaining() if self.admits(config))

    def shortest_probe_seconds(self) -> float:
        """Return the seconds of the shortest probe that is left; infinite if none is."""
        remaining = self._admission.remaining()
        if remaining is not self._shortest[0]:  # the same object means that no probe has ended since
            self._shortest = remaining, min(map(self._budget.least_seconds, remaining), default=math.inf)
        return self._shortest[1]
