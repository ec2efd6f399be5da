"""Simulates how long a training waits for loader workers: for batches in order, and as they are ready.

    in order      worker 1 ─ slow batch ───────────► step   step     the others are ready, and wait as well
    as ready      worker 2 ─ batch ─► step ─ batch ─► step           (`in_order=False`)

Follows `_MultiProcessingDataLoaderIter` of torch 2.13: each worker holds up to `prefetch` batches, and the next is
handed out when one is taken. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

PREFETCH = 2  # batches of a worker, by default


def step_seconds(
    batches: Sequence[float], workers: int, computing: float, *, in_order: bool, prefetch: int = PREFETCH
) -> float:
    """Return the seconds of a step, on average, where making the batches takes so long and computing what it takes."""
    free, done, owner = [0.0] * workers, dict[int, float](), dict[int, int]()
    waiting, turn, now = iter(enumerate(batches)), cycle(range(workers)), 0.0

    def hand_out(worker: int) -> None:
        for number, seconds in waiting:
            free[worker] = max(free[worker], now) + seconds
            done[number], owner[number] = free[worker], worker
            return

    for _ in range(prefetch * workers):
        hand_out(next(turn))
    for number in range(len(batches)):
        taken = number if in_order else min(done, key=lambda one: done[one])
        now = max(now, done.pop(taken))
        worker = owner.pop(taken)
        hand_out(next(turn) if in_order else worker)
        now += computing
    return now / len(batches)
