"""The interference by other processes: the kernel's counters at two moments, read by a probe or by the search.

    run-queue wait     the main thread was ready to run and did not get a core           /proc/self/schedstat
    foreign cores      busy time of the cores that this process may use, less its own    /proc/stat, /proc/PID/stat

The wait alone does not show who caused it: the probe's own loader workers make its main thread wait too. Not covered:
neighbours that use memory bandwidth or disk, but no cores. They show only in a repeat of the same configuration.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from autotune.core.interference_readings import HostInterference

LEADER = "_AUTOTUNE_LEADER"  # environment variable of ranks: the process that started their distributed launcher
OUTSIDE_LOOK_SECONDS = 1.0  # duration of a reading from outside of a probe: ticks of 10 ms err by 1 % of a core
_SCHEDSTAT = Path("/proc/self/schedstat")  # main thread: nanoseconds on a core, waiting for one, time slices

# How many cores others keep busy while the given function pauses for so many seconds; None: not reported.
ForeignCores = Callable[[Callable[[float], None]], float | None]


@dataclass(frozen=True, kw_only=True)
class KernelCounters:
    """The counters at one moment, in seconds. None: the kernel does not report them."""

    now: float
    waited: float | None
    busy: float | None  # all cores that this process may use
    own: float  # this process and all that it started


def read_counters() -> KernelCounters:
    """Return the counters. This takes 1 to 2 ms (it visits all processes): not for use inside a window."""
    return KernelCounters(now=time.perf_counter(), waited=run_queue_wait(), busy=_busy_seconds(), own=_own_seconds())


def interference_between(before: KernelCounters, after: KernelCounters) -> HostInterference:
    """Return the interference between two readings."""
    elapsed = after.now - before.now
    wait = foreign = None
    if before.waited is not None and after.waited is not None:
        wait = min(1.0, max(0.0, (after.waited - before.waited) / elapsed))
    if before.busy is not None and after.busy is not None:
        foreign = max(0.0, (after.busy - before.busy - (after.own - before.own)) / elapsed)
    return HostInterference(run_queue_wait_share=wait, foreign_cores=foreign)


def foreign_cores(pause: Callable[[float], None]) -> float | None:
    """Return how many cores other processes keep busy during the next second; None if the kernel does not report it."""
    before = read_counters()
    pause(OUTSIDE_LOOK_SECONDS)
    return interference_between(before, read_counters()).foreign_cores


def run_queue_wait() -> float | None:
    """Return the seconds that the main thread was ready to run without a core; None if not reported."""
    try:
        running, waiting, _ = map(int, _SCHEDSTAT.read_text().split())
    except (OSError, ValueError):
        return None
    return waiting / 1e9 if running else None  # all three are 0 in a kernel without CONFIG_SCHED_INFO


def _busy_seconds() -> float | None:
    """Return the seconds of processes, and of other guests of the host; not of interrupts: mostly own data."""
    try:
        cores = psutil.cpu_times(percpu=True)
        usable = os.sched_getaffinity(0)
        return float(
            sum(cores[core].user + cores[core].nice + cores[core].system + cores[core].steal for core in usable)
        )
    except (AttributeError, IndexError, OSError):  # not Linux; cores switched off; no /proc/stat
        return None


def _own_seconds() -> float:
    """Return the seconds used by this process and its descendants, ended ones included if they were waited for.

    For a rank: by all ranks and the process that started them, because they train together.
    """
    leader = os.environ.get(LEADER)
    processes = [psutil.Process()]
    with suppress(psutil.Error):
        processes = [psutil.Process(int(leader))] if leader else processes
        processes += processes[0].children(recursive=True)
    total = 0.0
    for process in processes:
        with suppress(psutil.Error):  # it has ended since: the parent that waited for it counts its time
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
