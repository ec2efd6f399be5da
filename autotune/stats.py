"""The few statistics that rankings rest on, each with its source."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit  # Student's quantile; scipy.stats has it too, and takes a second to import

FEWEST_BLOCKS = 4  # below it Student's t makes the interval meaningless
FEWEST_READINGS = 20  # of memory: below it a slope is chance (measurement note D3)
RISING_SHARE = 0.8  # of consecutive readings that must rise: 48 of 49 in a leaking run, 6 of 49 in a clean one (D3)
LEAST_GROWTH_BYTES = 64 * 2**10  # a step: a clean run's resident set grew by 9 kB, a leaking one's by 1.25 MB (D3)


def relative_half_width(seconds: Sequence[float], block: int = 1, confidence: float = 0.95) -> float | None:
    """Half width of the interval for the mean step time, relative to the mean, by non-overlapping batch means.

    `block` steps are averaged before the spread is taken, so that short autocorrelation (loader bursts) does not
    shrink it; with more than 20 blocks they are merged. None with fewer than four blocks. Source: batch means, Law &
    Kelton, "Simulation Modeling and Analysis"; of the rules tried on recorded traces the only one that kept its
    promise at 5 % spread (measurement note C3).
    """
    values = np.asarray(seconds, dtype=float)
    block = max(block, len(values) // 20, 1)
    count = len(values) // block
    if count < FEWEST_BLOCKS:
        return None
    means = values[: count * block].reshape(count, block).mean(axis=1)
    width = stdtrit(count - 1, 0.5 + confidence / 2) * means.std(ddof=1) / math.sqrt(count)
    return float(width / means.mean())


def mean_bounds(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Lower and upper bound of the mean, each one-sided at `confidence`, by Student's t; needs at least two values."""
    mean, count = float(np.mean(values)), len(values)
    width = float(stdtrit(count - 1, confidence) * np.std(values, ddof=1) / math.sqrt(count))
    return mean - width, mean + width


def memory_growth(track: Sequence[tuple[int, int]]) -> float:
    """Bytes by which memory grows with every step, 0.0 where it does not: `track` holds (step, bytes at its end).

    The slope of Theil and Sen, the median over all pairs of readings, which no single jump of the allocator moves
    (Sen 1968, "Estimates of the regression coefficient based on Kendall's tau"; scipy.stats has it too, see above).
    """
    if len(track) < FEWEST_READINGS:
        return 0.0
    steps, held = np.asarray(track, dtype=float).T
    later, earlier = np.tril_indices(len(track), -1)
    slope = float(np.median((held[later] - held[earlier]) / (steps[later] - steps[earlier])))
    rising = float(np.mean(np.diff(held) > 0))
    return slope if slope > LEAST_GROWTH_BYTES and rising > RISING_SHARE else 0.0


class Rounds:
    """Throughputs of several configurations measured in the same interleaved rounds, compared as ratios.

    Model: log rate = configuration + round + noise (randomised block design, Montgomery, "Design and Analysis of
    Experiments"). The round takes up drift of the machine; the noise is pooled over all configurations, so that two
    rounds of four configurations leave three degrees of freedom where pairs alone would leave one.
    """

    def __init__(self, rates: Sequence[Sequence[float]]) -> None:
        """`rates[configuration][round]` in samples/s, all above 0, no gaps."""
        self._logs = np.log(np.asarray(rates, dtype=float))
        configurations, rounds = self._logs.shape
        effects = self._logs.mean(axis=1, keepdims=True) + self._logs.mean(axis=0, keepdims=True) - self._logs.mean()
        self.degrees_of_freedom = (configurations - 1) * (rounds - 1)
        self._rounds = rounds
        squares = float(((self._logs - effects) ** 2).sum())
        self.noise = math.sqrt(squares / self.degrees_of_freedom) if self.degrees_of_freedom else math.nan

    def mean_rate(self, configuration: int) -> float:
        """Geometric mean over the rounds, samples/s."""
        return float(math.exp(self._logs[configuration].mean()))

    def ratio(self, one: int, other: int, confidence: float = 0.95) -> tuple[float, float, float]:
        """How many times as fast `one` is as `other`: estimate, low, high. Infinitely wide from a single round."""
        estimate = float(self._logs[one].mean() - self._logs[other].mean())
        if not self.degrees_of_freedom:
            return math.exp(estimate), 0.0, math.inf
        quantile = float(stdtrit(self.degrees_of_freedom, 0.5 + confidence / 2))
        width = quantile * self.noise * math.sqrt(2 / self._rounds)
        return math.exp(estimate), math.exp(estimate - width), math.exp(estimate + width)
