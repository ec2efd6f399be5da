"""What a sample per second is worth in each configuration, where a study maximises something else than samples/s.

Samples per joule, say: the law foresees samples/s, and what one of them is worth, 1 / power, is learned beside it from
value / rate of the measured configurations. Its logarithm is taken for a smooth function of batch, accumulation and
workers that differs between categories (kriging; Rasmussen & Williams, "Gaussian Processes for Machine Learning", 2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.structured.grid import Floats, Grid, Integers

OCTAVES = 6.0  # of batch, accumulation or workers, over which worths are alike: a judgement, as are the next two
CATEGORY = 0.5  # how alike two configurations are that differ in one category
NOISE = 0.01  # of the variance of worths: energy counters err by 5 %, and worths differ by tens of per cent
SAME = 1e-3  # relative; worths that differ by less are rounding: then the value is a throughput in some unit


def worths(grid: Grid, measured: Sequence[tuple[int, float]]) -> Floats | None:
    """Of every row, relative to the mean of the measured ones; None: all are alike, the value is a throughput.

    `measured` holds (row, value of the study for one sample/s of its rate), above 0.
    """
    if not measured:
        return None
    rows = np.array([row for row, _ in measured], np.int64)
    logs = np.log(np.array([worth for _, worth in measured]))
    logs -= logs.mean()
    if float(np.abs(logs).max()) < SAME:
        return None
    everywhere = np.arange(len(grid))
    known = _alike(grid, rows, rows) + NOISE * np.eye(len(rows))
    found: Floats = np.exp(_alike(grid, everywhere, rows) @ np.linalg.solve(known, logs))
    return found


def _alike(grid: Grid, one: Integers, other: Integers) -> Floats:
    """How alike configurations are, (one, other), 0 to 1."""
    found = np.ones((len(one), len(other)))
    for column in (np.log2(grid.batch), np.log2(grid.accumulation), np.log2(1 + grid.workers)):
        found *= np.exp(-0.5 * ((column[one][:, None] - column[other][None, :]) / OCTAVES) ** 2)
    for name in grid.categories:
        codes = grid.codes[name]
        found *= np.where(codes[one][:, None] == codes[other][None, :], 1.0, CATEGORY)
    return found
