"""Separates the time that a thread took itself from that in which other processes had its core.

Other work on the machine makes steps longer, but hardly the short call in them, which mostly ends before its core is
taken away. So a call is counted by what it took itself, and made longer by as much as steps were.
"""

from __future__ import annotations

import resource
import time
from typing import NamedTuple


class ThreadMoment(NamedTuple):
    """The counters of this thread at one moment."""

    passed: float  # seconds, of the clock
    computed: float  # seconds of processor time
    waits: int  # times that it gave up its core by itself


class Spent(NamedTuple):
    """The seconds of a thread between two moments, without those in which others had its core."""

    busy: float
    idle: float  # it waited for something else than a core

    def stretched(self, stretch: float) -> float:
        """Return the seconds that it takes where others make what is computed longer by the factor `stretch`."""
        return self.busy * stretch + self.idle


def moment() -> ThreadMoment:
    """Return this thread's counters now."""
    return ThreadMoment(time.perf_counter(), time.thread_time(), resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw)


def spent(before: ThreadMoment, after: ThreadMoment) -> Spent:
    """Return what the thread took between two moments; where it did not wait, others had the rest of that time."""
    passed, busy = after.passed - before.passed, after.computed - before.computed
    return Spent(busy, (passed - busy) * (after.waits > before.waits))


def stretch_of(before: ThreadMoment, after: ThreadMoment, run_queue_wait_share: float | None) -> float:
    """Return how many times as long computing took as without others; the share is that of the time between, 0..1."""
    computed = after.computed - before.computed
    waited = (run_queue_wait_share or 0.0) * (after.passed - before.passed)
    return 1 + waited / computed if computed > 0 else 1.0
