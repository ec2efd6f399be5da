"""The statistics on which rankings are based, each with its source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

FEWEST_WINDOW_BLOCKS = 4  # below it Student's t makes the interval meaningless
# Times the incumbent's rate: a probe with every block below it is given up (docs/notes/search.md 3).
HOPELESS_RATIO = 0.7
HOPELESS_BLOCKS = 2  # measured before a probe may be given up
WORTHLESS_RATIO = 0.98  # times the incumbent: surely slower configurations are not of interest (docs/notes/search.md 3)
NORMAL_95 = 1.645  # standard deviations: one-sided, of the normal distribution
BISECTIONS = 60  # halve an interval to less than a float's precision
PROBABLE_DEVIATIONS = 1.28  # standard errors in the half width of an 80 % interval
HALF_WIDTH_DEVIATIONS = 1.96  # standard errors in the half width of a 95 % interval
# Two probes of one configuration on a quiet machine, as shares of its rate: all rules take their noise from here.
PROBE_NOISE = 0.03  # standard deviation between them, until repeats show it (docs/notes/search.md 3)
PRIOR_PROBES = 4  # repeats whose own spread weighs as much as `PROBE_NOISE` (docs/notes/search.md 3)
MOST_PROBE_NOISE = 0.05  # they may differ by as much; a larger difference is another rate (docs/notes/timing.md 3)

Floats = NDArray[np.float64]


@lru_cache
def student_quantile(freedom: int, probability: float) -> float:
    """Return the quantile of Student's t with `freedom` >= 1 degrees of freedom, for a `probability` in [0.5, 1).

    Bisects the distribution function, whose series has an end (Abramowitz & Stegun 1964, 26.7.3 and 26.7.4). scipy is
    not used: in a probe, loading it takes 0.3 s of a timed step, and gives the user's process a second OpenBLAS.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(BISECTIONS):
        angle = (low + high) / 2
        low, high = (angle, high) if _student_share(freedom, angle) < 2 * probability - 1 else (low, angle)
    return math.sqrt(freedom) * math.tan(low)


def _student_share(freedom: int, angle: float) -> float:
    """Return the share of Student's t within ± tan(`angle`) * sqrt(`freedom`)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2
    term = total = (cosine if freedom > 1 else 0.0) if is_odd else 1.0
    for factor in range(2 + is_odd, freedom - 1, 2):
        term *= cosine**2 * (factor - 1) / factor
        total += term
    return (angle + sine * total) * 2 / math.pi if is_odd else sine * total


def relative_half_width(seconds: Sequence[float], block: int = 1) -> float | None:
    """Return the half width of the 95 % interval of the mean step time, relative to it, by non-overlapping batch means.

    `block` steps are averaged before the spread is taken, so that short autocorrelation (loader bursts) does not shrink
    it; with more than 20 blocks they are merged. None with fewer than four blocks. Source: batch means, Law & Kelton,
    "Simulation Modeling and Analysis"; of the rules tried on recorded traces the only one with the nominal coverage at
    5 % spread (docs/notes/timing.md 3).
    """
    values = np.asarray(seconds, dtype=float)
    block = max(block, len(values) // 20, 1)
    count = len(values) // block
    if count < FEWEST_WINDOW_BLOCKS:
        return None
    means = values[: count * block].reshape(count, block).mean(axis=1)
    width = student_quantile(count - 1, 0.975) * means.std(ddof=1) / math.sqrt(count)
    return float(width / means.mean())


def mean_bounds(values: Sequence[float]) -> tuple[float, float]:
    """Return lower and upper bound of the mean, each one-sided at 95 %, by Student's t; needs two values or more."""
    mean, count = float(np.mean(values)), len(values)
    width = student_quantile(count - 1, 0.95) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return mean - width, mean + width


def clearly_slower(rates: Sequence[float], incumbent: float) -> bool:
    """Return whether blocks of a probe with these rates show that it cannot reach the rate `incumbent` of another.

    It is a one-sided test by Student's t: the upper bound (95 %) of the mean is below 98 % of the incumbent. Two probes
    differ by more than the blocks of one show: this is added to the interval. It holds earlier if every block is below
    70 %. Source: docs/notes/search.md 3: none of 150 equal configurations was given up, and all at 0.9 times.
    """
    ratios = np.asarray(rates, dtype=float) / incumbent
    if len(ratios) >= HOPELESS_BLOCKS and float(ratios.max()) < HOPELESS_RATIO:
        return True
    if len(ratios) < FEWEST_WINDOW_BLOCKS:
        return False
    _, bound = mean_bounds(ratios.tolist())
    noise = NORMAL_95 * PROBE_NOISE * math.sqrt(2)
    return float(ratios.mean()) + math.hypot(bound - float(ratios.mean()), noise) < WORTHLESS_RATIO


def probe_noise(repeats: Iterable[Sequence[float]]) -> float:
    """Return the standard deviation of the logarithm of a rate, by `repeats`: the rates of each configuration.

    Few of them draw it towards the usual 3 % (docs/notes/search.md 3).
    """
    logs = [np.log(rates) for rates in repeats if len(rates)]
    squares = sum(float(((own - own.mean()) ** 2).sum()) for own in logs)
    freedom = sum(len(own) - 1 for own in logs)
    return math.sqrt((squares + PRIOR_PROBES * PROBE_NOISE**2) / (PRIOR_PROBES + freedom))


def difference_by_chance(noise: float, one: int = 1, other: int = 1) -> float:
    """Return the share by which the means of `one` and `other` probes of equal configurations may differ by chance.

    It is one-sided at 95 % by `noise` (of logarithms, as `probe_noise` returns it), and at least `MOST_PROBE_NOISE`.
    """
    return max(MOST_PROBE_NOISE, 1 - math.exp(-NORMAL_95 * noise * math.sqrt(1 / one + 1 / other)))


def typical_rate(rates: Sequence[float]) -> float:
    """Return the typical rate of one configuration by several, each above 0; 0.0 if there is none.

    It is the pseudo-median of their logarithms (Hodges & Lehmann 1963), as in `Rounds.typical_rate`: for one or two
    rates the geometric mean, with more hardly affected by one bad probe (decisions/0040).
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
