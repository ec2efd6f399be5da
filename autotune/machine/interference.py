"""The interference by other processes: the kernel's counters at two moments, read by a probe or by the search.

    run-queue wait     the main thread was ready to run and did not get a core           /proc/self/schedstat
    waits of threads   the same of each thread of the probe and of its workers, summed   /proc/PID/task/TID/schedstat
    foreign cores      busy time of the cores that this process may use, less its own    /proc/stat, /proc/PID/stat

The wait alone does not show who caused it: the probe's own loader workers make its main thread wait too. Not covered:
neighbours that use memory bandwidth or disk, but no cores. They show only in a repeat of the same configuration.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
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
    threads: Mapping[str, float] | None = None  # what each of their threads waited for a core; keys: its folder
    ended: float = 0.0  # of `own`, that of processes which have ended: what their threads waited is not known


def read_counters() -> KernelCounters:
    """Return the counters. This takes 1 to 2 ms (it visits all processes): not for use inside a window."""
    now, waited, processes = time.perf_counter(), run_queue_wait(), _own_processes()
    alive, ended = _seconds_of(processes)
    threads = None if waited is None else _waits_of(processes)
    return KernelCounters(now=now, waited=waited, busy=_busy_seconds(), own=alive + ended, threads=threads, ended=ended)


def interference_between(before: KernelCounters, after: KernelCounters) -> HostInterference:
    """Return the interference between two readings."""
    elapsed = after.now - before.now
    wait = foreign = None
    own = max(0.0, after.own - before.own) / elapsed
    if before.waited is not None and after.waited is not None:
        wait = min(1.0, max(0.0, (after.waited - before.waited) / elapsed))
    if before.busy is not None and after.busy is not None:
        foreign = max(0.0, (after.busy - before.busy) / elapsed - own)
    waits = _waits_between(before, after)
    return HostInterference(
        run_queue_wait_share=wait, foreign_cores=foreign,
        threads_wait_share=None if waits is None else waits / elapsed, own_cores=own,
    )  # fmt: skip


def _waits_between(before: KernelCounters, after: KernelCounters) -> float | None:
    """Return the seconds that all threads together waited for a core; None if one has ended, with what it waited."""
    if before.threads is None or after.threads is None or after.ended > before.ended:
        return None
    if not before.threads.keys() <= after.threads.keys():
        return None
    waits = sum(waited - before.threads.get(thread, 0.0) for thread, waited in after.threads.items())
    return max(waits, (after.waited or 0.0) - (before.waited or 0.0))  # that of the main thread is read some ms before


def foreign_cores(pause: Callable[[float], None]) -> float | None:
    """Return how many cores other processes keep busy during the next second; None if the kernel does not report it."""
    before = read_counters()
    pause(OUTSIDE_LOOK_SECONDS)
    return interference_between(before, read_counters()).foreign_cores


def run_queue_wait() -> float | None:
    """Return the seconds that the main thread was ready to run without a core; None if not reported."""
    return _waited(_SCHEDSTAT)


def _waited(schedstat: Path) -> float | None:
    try:
        running, waiting, _ = map(int, schedstat.read_text().split())
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


def _own_processes() -> list[psutil.Process]:
    """Return this process and its descendants. For a rank: all ranks and the process that started them.

    Ranks are the work of one training, so that one does not interfere with another.
    """
    leader = os.environ.get(LEADER)
    processes = [psutil.Process()]
    with suppress(psutil.Error):
        processes = [psutil.Process(int(leader))] if leader else processes
        processes += processes[0].children(recursive=True)
    return processes


def _seconds_of(processes: Sequence[psutil.Process]) -> tuple[float, float]:
    """Return the seconds that these used, and those of processes that they started, and that ended, waited for."""
    alive = ended = 0.0
    for process in processes:
        with suppress(psutil.Error):  # it has ended since: the parent that waited for it counts its time
            times = process.cpu_times()
            alive += times.user + times.system
            ended += times.children_user + times.children_system
    return alive, ended


def _waits_of(processes: Sequence[psutil.Process]) -> dict[str, float]:
    """Return the seconds that each of their threads was ready to run without a core; not of those that end now."""
    stats = (stat for process in processes for stat in Path("/proc", str(process.pid), "task").glob("*/schedstat"))
    return {str(stat.parent): waited for stat in stats if (waited := _waited(stat)) is not None}
