"""The raw readings of one rank, so that its work can be told from that of the ranks it trained with.

Ranks wait for one another in every step, so that their steps take the same time whoever is slow. What differs is how
long each was busy in them.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.records import Record


class RankReading(Record, frozen=True, kw_only=True):
    """One rank, in the order of ranks. Entries are those of the window, as in `Measurement`."""

    step_seconds: tuple[float, ...]
    loader_wait_seconds: tuple[float, ...]
    busy_seconds: tuple[float, ...] = ()  # its main thread on a core, and not waiting; (): not known, as on a GPU
    memory_bytes: int  # peak of its GPU, or of its processes on a host


def imbalance(values: Sequence[float]) -> float:
    """Return by how much the largest value exceeds the mean of all, as a share of the mean.

    The others wait for the largest: this is what an even distribution would save of the time that they all compute
    (the load-imbalance metric of DeRose et al., Euro-Par 2007, whose percentage is this over one plus this).
    """
    mean = sum(values) / len(values)
    return max(values) / mean - 1 if mean > 0 else 0.0
