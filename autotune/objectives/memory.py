"""`memory`: the smallest peak among configurations that are nearly as fast as the fastest."""

from __future__ import annotations

from typing import Annotated

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.option import Option
from autotune.core.records import Goal, Share
from autotune.objectives.base import MEMORY_STEP, Decision, ObjectiveOptions
from autotune.objectives.throughput import Throughput
from autotune.study.summary import ConfigSummary
from autotune.units import format_percent, parse_fraction

DESCENT = 4  # probes: the batches below the fastest one, halving what is left of a ladder of up to fifteen


class MemoryOptions(ObjectiveOptions, frozen=True, kw_only=True):
    """What speed may be given for memory."""

    within: Annotated[
        Share, Option(help="How much slower memory may be than the fastest.", read=parse_fraction, write=format_percent)
    ] = 0.05


class Memory(Throughput):
    """Looks for the fastest first, because nobody knows what is nearly as fast before that; then for less memory.

    The peak is the figure that counts against the memory limit: the device's on an accelerator, else the host's.
    """

    name = "memory"
    option_help = "the least within --within of the fastest"
    options = MemoryOptions
    wish = "the least memory that is nearly as fast as the fastest"
    is_speed = False
    order_step = MEMORY_STEP
    best, unbeaten = "most memory-efficient", "measurably smaller in memory and nearly as fast"

    def slack(self, goal: Goal) -> float:
        """The share of speed that the user gives for memory."""
        return MemoryOptions.of(goal).within

    def order(self, summary: ConfigSummary) -> float:
        """The peak, in bytes."""
        return float(summary.peak_bytes)

    def probes_after(self) -> int:
        """What it takes to find the smallest batch that is still fast enough."""
        return DESCENT

    def headline(self, decision: Decision) -> Notice | None:
        """`67% less memory than your baseline (2.1 GiB instead of 6.3 GiB) at 0.97× its speed`."""
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
        """What the fastest would have been, and would have needed."""
        now, fastest, within = decision.chosen, decision.leader, MemoryOptions.of(decision.goal).within
        if now == fastest:
            return (notice(Code.LEAST_MEMORY_IS_FASTEST, within=within),)
        slower = max(0.0, 1 - now.score / fastest.score)
        return (notice(Code.LEAST_MEMORY, within=within, slower=slower, fastest_bytes=fastest.peak_bytes),)
