"""The few statistics that rankings rest on, each with its source."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FEWEST_WINDOW_BLOCKS = 4  # below it Student's t makes the interval meaningless
# Times the incumbent's rate: a probe with every block below it is given up (docs/notes/search.md 3).
HOPELESS_RATIO = 0.7
HOPELESS_BLOCKS = 2  # measured before that may happen
WORTHLESS_RATIO = 0.98  # times the incumbent: what is surely slower is not searched for (docs/notes/search.md 3)
# Student's t at 97.5 % with 3 to 38 degrees of freedom: a window has at most 39 blocks. A probe does not load scipy for
# it: that takes 0.2 s of a timed step, and brings the user's process an OpenBLAS of its own.
WINDOW_QUANTILES = (
    3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555,
    2.0518, 2.0484, 2.0452, 2.0423, 2.0395, 2.0369, 2.0345, 2.0322, 2.0301, 2.0281, 2.0262, 2.0244,
)  # fmt: skip
NORMAL_95 = 1.645  # standard deviations: one-sided, of the normal distribution
HALF_WIDTH_DEVIATIONS = 1.96  # standard errors in the half width of a 95 % interval
# Two probes of one configuration on a quiet machine, as shares of its rate: all rules take their noise from here.
PROBE_NOISE = 0.03  # standard deviation between them, until repeats tell (docs/notes/search.md 3)
MOST_PROBE_NOISE = 0.05  # they may differ by as much; what differs by more is another rate (docs/notes/timing.md 3)

Floats = NDArray[np.float64]


def student_quantile(freedom: int, probability: float) -> float:
    """Return the quantile of Student's t with `freedom` degrees of freedom."""
    # Imported here, for it takes as long as all else that `autotune report` does; scipy.stats would take a second.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def relative_half_width(seconds: Sequence[float], block: int = 1) -> float | None:
    """Half width of the 95 % interval for the mean step time, relative to the mean, by non-overlapping batch means.

    `block` steps are averaged before the spread is taken, so that short autocorrelation (loader bursts) does not
    shrink it; with more than 20 blocks they are merged. None with fewer than four blocks. Source: batch means, Law &
    Kelton, "Simulation Modeling and Analysis"; of the rules tried on recorded traces the only one that kept its
    promise at 5 % spread (docs/notes/timing.md 3).
    """
    values = np.asarray(seconds, dtype=float)
    block = max(block, len(values) // 20, 1)
    count = len(values) // block
    if count < FEWEST_WINDOW_BLOCKS:
        return None
    means = values[: count * block].reshape(count, block).mean(axis=1)
    width = WINDOW_QUANTILES[count - FEWEST_WINDOW_BLOCKS] * means.std(ddof=1) / math.sqrt(count)
    return float(width / means.mean())


def mean_bounds(values: Sequence[float]) -> tuple[float, float]:
    """Lower and upper bound of the mean, each one-sided at 95 %, by Student's t; needs at least two values."""
    mean, count = float(np.mean(values)), len(values)
    width = float(student_quantile(count - 1, 0.95) * np.std(values, ddof=1) / math.sqrt(count))
    return mean - width, mean + width


def clearly_slower(rates: Sequence[float], incumbent: float) -> bool:
    """Whether blocks of one probe with these rates leave no hope of the `incumbent`, a rate that another probe had.

    One-sided by Student's t: the upper bound (95 %) of the mean lies below 98 % of the incumbent. Two probes
    differ by more than blocks of one of them show: that is added to the interval. Sooner where every block
    is below 70 %. Source: docs/notes/search.md 3: none of 150 equal configurations was given up, and all at 0.9 times.
    """
    ratios = np.asarray(rates, dtype=float) / incumbent
    if len(ratios) >= HOPELESS_BLOCKS and float(ratios.max()) < HOPELESS_RATIO:
        return True
    if len(ratios) < FEWEST_WINDOW_BLOCKS:
        return False
    _, bound = mean_bounds(ratios.tolist())
    noise = NORMAL_95 * PROBE_NOISE * math.sqrt(2)
    return float(ratios.mean()) + math.hypot(bound - float(ratios.mean()), noise) < WORTHLESS_RATIO


def typical_rate(rates: Sequence[float]) -> float:
    """Return the typical rate of one configuration by several, each above 0; 0.0 if there is none.

    It is the pseudo-median of their logarithms (Hodges & Lehmann 1963), as `Rounds.typical_rate` has it: the geometric
    mean of one or two, and hardly moved by one bad probe among more (decisions/0040).
    """
    if len(rates) < 2:
        return float(rates[0]) if len(rates) else 0.0
    return math.exp(float(np.median(walsh_averages(np.log(rates)))))


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the arithmetic mean of those values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def walsh_averages(values: Floats) -> Floats:
    """Return Walsh's averages, of all pairs and of each value with itself, in ascending order."""
    one, other = np.triu_indices(len(values))
    return np.sort((values[one] + values[other]) / 2)
