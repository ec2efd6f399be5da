"""The growth of memory with every step, which shows a leak as far as one probe can."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FEWEST_READINGS = 20  # of memory: below it a slope is chance (docs/notes/memory.md 3)
RISING_PARTS = 8  # of a window: each must hold more memory than the one before
LAST_RISES = 3  # between those: growth has to go on to the end, and settling slows down
MOST_STEPS_LEFT = 250_000  # until memory runs out: a slower growth was seen without a leak, and few train so long
LEAST_GROWTH_BYTES = 64 * 2**10  # a step: a clean run's resident set grew by 9 kB, a leaking one's by 1.25 MB


def memory_growth(track: Sequence[tuple[int, int]]) -> float:
    """Return the bytes by which memory grows per step, 0.0 if it does not; `track` has (step, bytes at its end).

    It is the median rise between the means of successive eighths of the window: one jump of the allocator affects at
    most two of the seven rises, and so not their median (it did affect a slope over all pairs of readings:
    docs/notes/memory.md 3). Growth counts only if every eighth holds more than the one before, and if the last rises
    are also at least `LEAST_GROWTH_BYTES` a step: not every step shows in the resident set, because the C library
    reuses freed memory, and a run without a leak grows in a few jumps, mostly in its first steps.
    """
    if len(track) < FEWEST_READINGS:
        return 0.0
    parts = [part.mean(axis=0) for part in np.array_split(np.asarray(track, dtype=float), RISING_PARTS)]
    steps, rises = np.diff(parts, axis=0).T
    if not (rises > 0).all():
        return 0.0
    slopes = rises / steps
    goes_on = float(np.median(slopes[-LAST_RISES:])) > LEAST_GROWTH_BYTES
    slope = float(np.median(slopes))
    return slope if slope > LEAST_GROWTH_BYTES and goes_on else 0.0
