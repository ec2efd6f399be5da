"""The raw readings of one rank, which distinguish its work from that of the other ranks.

Ranks wait for one another in every step, so their steps take equally long, whichever rank is slow. Only the time in
which each was busy differs.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.records import Record


class RankReading(Record, frozen=True, kw_only=True):
    """One rank, in the order of ranks. Entries are those of the window, as in `Measurement`."""

    step_seconds: tuple[float, ...]
    loader_wait_seconds: tuple[float, ...]
    busy_seconds: tuple[float, ...] = ()  # processor seconds of its main thread; (): unknown, as on a GPU
    memory_bytes: int  # peak of its GPU, or of its processes on a host


def imbalance(values: Sequence[float]) -> float:
    """Return by how much the largest value exceeds the mean of all, as a share of the mean.

    The others wait for the largest: an even distribution would save this share of their mean time (the load-imbalance
    metric of DeRose et al., Euro-Par 2007, whose percentage is this over one plus this).
    """
    mean = sum(values) / len(values)
    return max(values) / mean - 1 if mean > 0 else 0.0
