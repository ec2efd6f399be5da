"""The pace of a probe: the seconds of its parts, from which follow the seconds of another one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from autotune.core.requests import EPOCH_PATIENCE, FEWEST_PROBE_STEPS, FEWEST_STEPS_IN_TURN, MEASURED_STEPS, ProbeBudget
from autotune.core.results import ProbeResult


@dataclass(frozen=True)
class Pace:
    """The seconds of one probe: its window, a cycle as it was run, a full optimizer step, and all but compiling.

    `steps` is the fewest that such a probe runs. A window may be of whole epochs, and longer than asked for.
    """

    window: float
    cycle: float
    step: float
    rest: float
    steps: int = FEWEST_PROBE_STEPS
    epoch: float = 0.0  # seconds of an epoch that ended in the window; 0.0: none did
    cut_at: float = 0.0  # relative half width at which the window was cut short; 0.0: it ended by itself

    @classmethod
    def of(cls, result: ProbeResult) -> Self:
        """Return the pace of a probe that ran."""
        measured = result.measurement
        assert measured is not None, "only what was measured has a pace"
        window = sum(measured.step_seconds)
        step = measured.samples_per_step / measured.samples_per_second
        # By its records, not by today's rules: earlier versions timed computing alone also on a CPU.
        has_more = "alone" in result.phase_seconds or measured.worst_batches
        steps = FEWEST_PROBE_STEPS if has_more else FEWEST_STEPS_IN_TURN
        rest = result.elapsed_seconds - window - compiling_seconds(result)
        epoch = window / measured.loader_restarts if measured.loader_restarts else 0.0
        half_width = math.inf if measured.relative_half_width is None else measured.relative_half_width
        cut_at = half_width if measured.cut_short else 0.0
        return cls(window, window / measured.steps, step, rest, steps, epoch, cut_at)

    def to_its_end(self, budget: ProbeBudget) -> Self:
        """Return the pace with the window that it takes if it is not cut short: an interval narrows by its root."""
        return replace(self, window=self.window * max(1.0, (self.cut_at / budget.target_precision) ** 2))

    def again(self, budget: ProbeBudget, cycle: float) -> float:
        """Return the seconds of the same probe with this budget and cycles of `cycle` seconds."""
        bounded = min(max(self.window, budget.min_seconds), budget.max_seconds)
        if 0 < self.epoch <= EPOCH_PATIENCE * budget.max_seconds:
            bounded = max(bounded, min(math.ceil(bounded / self.epoch) * self.epoch, self.window))
        others = (self.steps - MEASURED_STEPS) * (cycle - self.cycle)
        return max(0.0, self.rest + others) + max(bounded, MEASURED_STEPS * cycle)


def compiling_seconds(result: ProbeResult) -> float:
    """Return the seconds that a probe compiled before its window."""
    found = result.measurement.compilation if result.measurement else None
    return 0.0 if found is None else found.seconds - found.seconds_in_window


def starting_seconds(result: ProbeResult) -> float:
    """Return the seconds that the process of a probe took until it trained."""
    built = sum(result.phase_seconds.get(name, 0.0) for name in ("start", "load", "build"))
    steps = sum(result.measurement.warmup_seconds) if result.measurement else 0.0
    return built + max(0.0, result.phase_seconds.get("warm-up", 0.0) - steps)
