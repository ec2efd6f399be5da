"""`memory`: the smallest peak among configurations that are nearly as fast as the fastest."""

from __future__ import annotations

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Environment, Goal, TargetFacts
from autotune.objectives.base import DESCENT_PROBES, MEMORY_STEP, Decision
from autotune.objectives.throughput import SpeedOptions, Throughput
from autotune.study.summary import ConfigSummary


class Memory(Throughput):
    """The search for the fastest first, because it defines what is nearly as fast; then for less memory.

    The peak is the one that counts against the memory limit: the device's on an accelerator, else the host's.
    """

    name = "memory"
    option_help = "the least within --within of the fastest"
    wish = "the least memory that is nearly as fast as the fastest"
    is_speed = False
    order_step = MEMORY_STEP
    best, unbeaten = "most memory-efficient", "measurably smaller in memory and nearly as fast"

    def check(self, goal: Goal, environment: Environment, facts: TargetFacts) -> None:
        """Accept every goal; raise nothing."""

    def uses_options(self, goal: Goal) -> bool:
        """Return True: memory always allows to give up speed."""
        return True

    def knee(self, goal: Goal) -> None:
        """Return None: speed is given up for memory."""

    def slack(self, goal: Goal) -> float:
        """Return the share of speed that the user gives up for memory."""
        return SpeedOptions.of(goal).within

    def order(self, summary: ConfigSummary) -> float:
        """Return the peak, in bytes: less is preferred."""
        return float(summary.peak_bytes)

    def probes_after(self, goal: Goal) -> int:
        """Return how many probes it takes to find the smallest batch that is still fast enough."""
        return DESCENT_PROBES

    def headline(self, decision: Decision) -> Notice | None:
        """Return such as `67% less memory than your baseline (2.1 GiB instead of 6.3 GiB) at 0.97× its speed`."""
        before, now = decision.baseline, decision.chosen
        if before is None or decision.speedup is None or not self.is_lower(now, before):
            return None
        return notice(
            Code.LESS_MEMORY,
            saved=1 - now.peak_bytes / before.peak_bytes,
            baseline=decision.baseline_name,
            peak_bytes=now.peak_bytes,
            baseline_bytes=before.peak_bytes,
            speedup=decision.speedup[0],
        )

    def reasons(self, decision: Decision) -> tuple[Notice, ...]:
        """Return how fast the fastest configuration was, and the memory that it needed."""
        now, fastest, within = decision.chosen, decision.best, SpeedOptions.of(decision.goal).within
        if now == fastest:
            return (notice(Code.LEAST_MEMORY_IS_FASTEST, within=within),)
        slower = max(0.0, 1 - now.score / fastest.score)
        return (notice(Code.LEAST_MEMORY, within=within, slower=slower, fastest_bytes=fastest.peak_bytes),)
