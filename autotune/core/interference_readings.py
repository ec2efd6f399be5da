"""The interference with a probe while it measured, on the host and on its GPU: readings stored in its result."""

from __future__ import annotations

import math

from autotune.core.records import Record

MOST_WAIT_SHARE = 0.03  # above it steps are longer by about as much (docs/notes/timing.md 2)
# Cores of others above which a probe counts as slowed. Fewer slow a probe on two cores by 5 % at most; the error of
# ticks of 10 ms and the search's own use are lower.
MOST_FOREIGN_CORES = 0.1


class HostInterference(Record, frozen=True, kw_only=True):
    """The interference during the window, read by the probe itself. None: cannot be read here."""

    run_queue_wait_share: float | None = None  # of the window, in which the main thread was ready and not running; 0..1
    foreign_cores: float | None = None  # cores kept busy by processes that are not of this probe
    # The same wait of all threads of the probe and its workers, summed: 0 or more; None also if one of them ended.
    threads_wait_share: float | None = None
    own_cores: float | None = None  # cores kept busy by the probe and its workers

    @property
    def is_noticeable(self) -> bool:
        """Whether others slowed the probe noticeably: it had to wait for a core, and others held one.

        Both must hold, because a probe's own loader workers make it wait, too, and because others on idle cores do no
        harm. False if one of the two cannot be read.
        """
        if self.run_queue_wait_share is None or self.foreign_cores is None:
            return False
        return self.run_queue_wait_share > MOST_WAIT_SHARE and self.foreign_cores > MOST_FOREIGN_CORES

    @property
    def slowdown(self) -> float:
        """The factor by which waiting made a step longer: 1 / (1 - w), right to 3 % (docs/notes/timing.md 2)."""
        return 1 / max(1e-3, 1 - (self.run_queue_wait_share or 0.0))

    @property
    def most_slowdown(self) -> float:
        """The factor by which waiting made a step longer at most: 1 / (1 - w), w of all threads together.

        Threads wait for each other, so that one that has no core delays all, by no more than it waits itself. Infinite
        if that explains the whole window, or is not known.
        """
        waited = self.threads_wait_share
        return math.inf if waited is None or waited >= 1 else 1 / (1 - waited)


class GpuUse(Record, frozen=True, kw_only=True):
    """The use of the probe's GPU during the window by NVML, sampled by the launcher. None: this GPU does not tell."""

    readings: int
    utilization: float | None = None  # mean share of time with any kernel, 0..1: high proves nothing, low starvation
    used_bytes: int | None = None  # highest, all processes
    power_watts: float | None = None  # mean
    energy_joules: float | None = None  # counter's difference over the window
    sm_clock_mhz: tuple[int, int] | None = None  # lowest and highest
    throttle_reasons: tuple[str, ...] = ()  # seen in any reading
    foreign_processes: tuple[int, ...] = ()  # that are not of this probe and hold a context, if only an idle one
    foreign_share: float | None = None  # mean share of time with a kernel of theirs, 0..1
