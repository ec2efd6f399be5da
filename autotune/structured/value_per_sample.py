"""The value of one sample/s in each configuration, where a study maximises something else than samples/s.

For samples per joule it is 1 / power: the performance model predicts samples/s, and the value of one is learned from
score / rate of the measured configurations. Its logarithm is modelled as a smooth function of batch, accumulation and
workers that differs between categories (kriging; Rasmussen & Williams, "Gaussian Processes for Machine Learning", 2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.structured.grid import Floats, Grid, Integers

OCTAVES = 6.0  # correlation length of batch, accumulation and workers: a judgement, as are the next two
CATEGORY = 0.5  # correlation of two configurations that differ in one category
NOISE = 0.01  # of the variance of values: energy counters err by 5 %, and values differ by tens of per cent
SAME = 1e-3  # relative; values that differ by less differ by rounding: the score is a throughput in some unit


def values_per_sample(grid: Grid, measured: Sequence[tuple[int, float]]) -> Floats | None:
    """Return the value in every row, relative to the mean of the measured ones; None if all are the same.

    `measured` holds (row, score for one sample/s), above 0.
    """
    if not measured:
        return None
    rows = np.array([row for row, _ in measured], np.int64)
    logs = np.log(np.array([value for _, value in measured]))
    logs -= logs.mean()
    if float(np.abs(logs).max()) < SAME:
        return None
    known = _correlation(grid, rows, rows) + NOISE * np.eye(len(rows))
    found: Floats = np.exp(_correlation(grid, np.arange(len(grid)), rows) @ np.linalg.solve(known, logs))
    return found


def _correlation(grid: Grid, one: Integers, other: Integers) -> Floats:
    """Return the correlation of configurations, (one, other), 0 to 1."""
    found = np.ones((len(one), len(other)))
    for column in (np.log2(grid.batch), np.log2(grid.accumulation), np.log2(1 + grid.workers)):
        found *= np.exp(-0.5 * ((column[one][:, None] - column[other][None, :]) / OCTAVES) ** 2)
    for name in grid.categories:
        codes = grid.codes[name]
        found *= np.where(codes[one][:, None] == codes[other][None, :], 1.0, CATEGORY)
    return found
