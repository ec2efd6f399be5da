"""The growth of memory with every step: a leak, as far as one probe can tell."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

FEWEST_READINGS = 20  # of memory: below it a slope is chance (docs/notes/memory.md 3)
RISING_PARTS = 8  # of a window, each of which must hold more than the one before
LEAST_GROWTH_BYTES = 64 * 2**10  # a step: a clean run's resident set grew by 9 kB, a leaking one's by 1.25 MB


def memory_growth(track: Sequence[tuple[int, int]]) -> float:
    """Bytes by which memory grows with every step, 0.0 where it does not: `track` holds (step, bytes at its end).

    The slope of Theil and Sen, the median over all pairs of readings, which no single jump of the allocator moves
    (Sen 1968, "Estimates of the regression coefficient based on Kendall's tau"; scipy.stats has it too, see above). It
    counts if each eighth of the window holds more than the one before: not every step shows in the resident set,
    because the C library reuses what was given back to it, and a clean run grows in a few jumps.
    """
    if len(track) < FEWEST_READINGS:
        return 0.0
    steps, used = np.asarray(track, dtype=float).T
    later, earlier = np.tril_indices(len(track), -1)
    slope = float(np.median((used[later] - used[earlier]) / (steps[later] - steps[earlier])))
    parts = [float(part.mean()) for part in np.array_split(used, RISING_PARTS)]
    is_rising = all(one < other for one, other in itertools.pairwise(parts))
    return slope if slope > LEAST_GROWTH_BYTES and is_rising else 0.0
