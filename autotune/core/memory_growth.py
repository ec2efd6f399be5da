"""The growth of memory with every step: a leak, as far as one probe can tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FEWEST_READINGS = 20  # of memory: below it a slope is chance (docs/notes/memory.md 3)
RISING_PARTS = 8  # of a window, each of which must hold more than the one before
LAST_RISES = 3  # between those: growth has to go on to the end, and settling slows down
MOST_STEPS_LEFT = 250_000  # until memory runs out: a slower growth was seen without a leak, and few train so long
LEAST_GROWTH_BYTES = 64 * 2**10  # a step: a clean run's resident set grew by 9 kB, a leaking one's by 1.25 MB


def memory_growth(track: Sequence[tuple[int, int]]) -> float:
    """Bytes by which memory grows with every step, 0.0 where it does not: `track` holds (step, bytes at its end).

    The median rise from one eighth of the window to the next, each by its mean: one jump of the allocator is in two of
    the seven at most, wherever it falls, and does not move their median (a slope over all pairs of readings it did
    where it fell into the middle: docs/notes/memory.md 3). It counts if every eighth holds more than the one before,
    and if the last rises are no less than `LEAST_GROWTH_BYTES` a step either: not every step shows in the resident
    set, because the C library reuses what was given back to it, and a clean run grows in a few jumps, and most of all
    in its first steps.
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
