"""Configurations that were measured in the same interleaved rounds, compared as ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from autotune.core.stats import PROBE_NOISE, Floats, student_quantile, typical_rate, walsh_averages

# Standard deviations of the difference of two probes that an undisturbed probe stays within (decisions/0048).
OUTLIER_DEVIATIONS = 3.0
# Two rounds of two leave the noise one degree of freedom, and Student's 95 % is 12.7 standard errors: a usual noise
# that counts for one more makes it 4.3. With it, two configurations in two rounds show a gain of 40 % in 87 of 100
# confirmations instead of 34 (probes err by 6 %); equals are told apart wrongly in 2.6 of 100 as before (6 instead of
# 2.4 where probes err by 20 %). Source: decisions/0048.
# Where the windows themselves scatter more than that, their standard error takes its place: two rounds beside heavy
# other work, each window known to ± 60 to 140 %, once agreed to 12 % by luck, and said 2.82 (1.91 to 4.16) of equals.
USUAL_NOISE, USUAL_NOISE_FREEDOM = 0.05, 1
OWN_ROUNDS = 6  # of two configurations: then their own ratios tell their noise about as well as all others do


class Rounds:
    """Throughputs of several configurations measured in the same interleaved rounds, compared as ratios.

        round  1 2 3 4 5 6 7 8
        A      ● ● ● ● ● ● ● ●
        B      ● ● ● ─            left behind: compared with A over the three rounds that both ran
        C            ● ● ● ● ●    joined later

        A      ● ─ ●              what others slowed is left out: where two rounds in a row have no configuration
        B      ─ ● ●              in common, they are compared as one, for the drift between them is that of a round

    Two configurations are compared by their ratios within rounds, which drift of the machine moves alike. The centre
    of those is the pseudo-median (median of all pairwise averages: Hodges & Lehmann 1963), the mean of two rounds,
    and hardly moved by one bad round among more.
    """

    def __init__(
        self, rates: Sequence[Sequence[float | None]], reference: int | None = None, *, window_noise: float = 0.0
    ) -> None:
        """`rates[configuration][round]` in samples/s, above 0; None or nothing at the end: it missed that round.

        `reference`: the configuration whose typical rate is its own, and the others' by their ratio to it; by default
        the fastest of those that were measured most often, whatever the order in which they are given.
        `window_noise`: the standard error of one measurement by its own window, relative; 0: not known.
        """
        self._usual_noise = max(USUAL_NOISE, window_noise)
        self._logs = np.full((len(rates), max(map(len, rates), default=0)), math.nan)
        for row, values in zip(self._logs, rates, strict=True):
            row[: len(values)] = [math.nan if rate is None else math.log(rate) for rate in values]
        self._measured, self._logs = self._logs, _joined(self._logs)
        self.noise, self.degrees_of_freedom = _noise(self._logs)
        self._reference = self._usual_reference() if reference is None else reference

    @property
    def configurations(self) -> int:
        """The number of configurations in the rounds."""
        return len(self._logs)

    def count(self, one: int, other: int) -> int:
        """Return the number of rounds in which both were measured."""
        return len(self._ratios(one, other))

    def typical_rate(self, configuration: int) -> float:
        """Return samples/s, as over all rounds of the reference: centre of that one's rates times the ratio to it."""
        own = self._logs[self._reference]
        return typical_rate(np.exp(own[~np.isnan(own)])) * math.exp(self._centre(configuration, self._reference))

    def half_width(self, configuration: int) -> float | None:
        """Return the relative half width of a rate at 95 %, from the noise that all share; None: none ran twice."""
        if not self.degrees_of_freedom:
            return None
        return self._half_width(0.95) / math.sqrt(self.count(configuration, configuration))

    def ratio(self, one: int, other: int, confidence: float = 0.95) -> tuple[float, float, float]:
        """Return the rate of `one` over that of `other`: estimate, low, high. Infinite where none met both.

        Fewer than six common rounds: Student's interval, its noise pooled over all configurations, so that two rounds
        of four leave three degrees of freedom where the pair alone leaves one, and drawn towards the usual noise where
        that narrows it; one round has the usual noise alone: only a factor of 2.5 (12.7·√2·5 %) counts. The usual noise
        is 5 %, or what the windows themselves show if that is more.

        From six rounds on the pair's own ratios count, for configurations need not be equally noisy; by the signed-rank
        test (Tukey's interval, from the pairwise averages: Hollander & Wolfe, "Nonparametric Statistical Methods", 3.4)
        where there are rounds enough for it to leave out an extreme one: seven at 95 %.
        """
        centre, ratios = self._centre(one, other), self._ratios(one, other)
        rounds = len(ratios)
        if not rounds and (third := self._common_opponent(one, other)) is not None:
            return self._indirect_ratio(third, one, other, confidence)
        cut = _signed_rank_cut(rounds, confidence)
        if cut:
            averages = walsh_averages(ratios)
            return math.exp(centre), math.exp(averages[cut]), math.exp(averages[-1 - cut])
        if not rounds:
            return math.exp(centre), 0.0, math.inf
        if rounds >= OWN_ROUNDS:
            reach = student_quantile(rounds - 1, 0.5 + confidence / 2) * float(ratios.std(ddof=1))
        else:
            reach = self._half_width(confidence) * math.sqrt(2)
        width = reach / math.sqrt(rounds)
        return math.exp(centre), math.exp(centre - width), math.exp(centre + width)

    def expected_slowdown(self, chosen: int, rival: int, tie: float = 0.0) -> float:
        """Return the expected share of speed that is lost by choosing `chosen`, because `rival` may be faster.

        Only a loss beyond `tie` counts, a share that is not worth a change. The expected opportunity cost (Chick &
        Inoue 2001, "New two-stage and sequential procedures for selecting the best simulated system"), by the noise of
        their own ratios, moderated as in `ratio`: a baseline that scatters more than both says nothing of these.
        Infinite with fewer than two common rounds.
        """
        ratios = self._ratios(chosen, rival)
        rounds = len(ratios)
        if rounds < 2:
            return math.inf
        noise, freedom = self._moderated_noise(float(ratios.std(ddof=1)) / math.sqrt(2), rounds - 1)
        error = noise * math.sqrt(2 / rounds)
        return error * _expected_excess((self._centre(chosen, rival) - math.log1p(-tie)) / error, freedom)

    def _common_opponent(self, one: int, other: int) -> int | None:
        """Return the configuration with the most rounds in common with both; None: there is none."""
        met = [(min(self.count(one, third), self.count(third, other)), -third) for third in range(len(self._logs))]
        most, third = max(met)
        return -third if most else None

    def _indirect_ratio(self, third: int, one: int, other: int, confidence: float) -> tuple[float, float, float]:
        """Return the rate of `one` over that of `other`, without common rounds, from the ratios of a third to each.

        An indirect comparison: the logarithms add up, and so do their variances (Bucher et al. 1997, "The results of
        direct and indirect treatment comparisons in meta-analysis of randomized controlled trials"). An interval that
        includes 1 counts from there, as the estimate does (`_told_apart`): one that is as fast as the third or faster
        has at worst what the third has, and not less because its own few rounds differ.
        """
        pairs = (one, third), (third, other)
        ways = [(self._told_apart(*pair), self.ratio(*pair, confidence)) for pair in pairs]
        centre = sum(told for told, _ in ways)
        if any(not low for _, (_, low, _) in ways):
            return math.exp(centre), 0.0, math.inf
        below = math.hypot(*(max(0.0, told - math.log(low)) for told, (_, low, _) in ways))
        above = math.hypot(*(max(0.0, math.log(high) - told) for told, (_, _, high) in ways))
        return math.exp(centre), math.exp(centre - below), math.exp(centre + above)

    def _half_width(self, confidence: float) -> float:
        """Return the half-width of the interval of one measurement.

        By the noise alone or by the moderated variance (Smyth 2004, "Linear models and empirical Bayes methods for
        assessing differential expression in microarray experiments", with a prior of our own), whichever is narrower.
        With one degree of freedom, or where windows scatter by more than is usual, by the latter: rounds that agree far
        better than their windows let them do so by luck.
        """
        own = self.degrees_of_freedom
        tells_alone = own > 1 and self._usual_noise == USUAL_NOISE
        known = [self._moderated_noise(self.noise, own), *([(self.noise, own)] if tells_alone else [])]
        return min(student_quantile(freedom, 0.5 + confidence / 2) * noise for noise, freedom in known)

    def _moderated_noise(self, noise: float, freedom: int) -> tuple[float, int]:
        """Return the standard deviation of one measurement, drawn towards the usual noise, and its freedom."""
        squares = (freedom * noise**2 if freedom else 0.0) + USUAL_NOISE_FREEDOM * self._usual_noise**2
        return math.sqrt(squares / (freedom + USUAL_NOISE_FREEDOM)), freedom + USUAL_NOISE_FREEDOM

    def gaps(self, running: Sequence[int]) -> dict[int, float]:
        """Return the gap of each to the fastest of these (log ratio, at most 0), over the rounds that all of them ran.

        They are medians of the differences to each round's mean: one bad round does not affect them
        (docs/notes/search.md 4).
        """
        logs = self._logs[list(running)]
        common = logs[:, ~np.isnan(logs).any(axis=0)]
        medians = np.median(common - common.mean(axis=0), axis=1)
        return dict(zip(running, (medians - medians.max()).tolist(), strict=True))

    def slow_outliers(self) -> list[tuple[int, int]]:
        """Return the measurements, as (configuration, round), that were slow for no recorded reason.

        They are slower than all other rounds of their configuration by more than three standard deviations of the
        difference of two: 3 % each, or what the rounds themselves show, by medians (1.48 of them are a standard
        deviation of normal noise). A change that all others had in that round, too, is subtracted. Fast outliers do not
        exist, because interference can only slow a probe down.
        """
        without_rounds = self._measured - self._round_effects()
        counts = (~np.isnan(without_rounds)).sum(axis=1)
        comparable = np.where(counts > 1)[0]
        if not len(comparable):
            return []
        own = without_rounds[comparable]
        lost = own - np.nanmedian(own, axis=1, keepdims=True)
        freedom = np.sqrt(counts[comparable] / (counts[comparable] - 1))[:, None]
        deviation = 1.4826 * float(np.nanmedian(np.abs(lost * freedom)))
        gap = OUTLIER_DEVIATIONS * math.sqrt(2) * max(PROBE_NOISE, deviation)
        lowest = np.nanargmin(own, axis=1)
        second = np.sort(own, axis=1)[:, 1]
        slow = own[np.arange(len(own)), lowest] < second - gap
        return [(int(one), int(number)) for one, number in zip(comparable[slow], lowest[slow], strict=True)]

    def _round_effects(self) -> Floats:
        """Return the effect of each round for each configuration, by the others (log ratio to their medians).

        It is the median over the others; of two middle values the smaller effect, because the other may be an outlier.
        """
        moved = self._measured - self._row_medians()
        effects = np.zeros_like(moved)
        for one, number in np.argwhere(~np.isnan(moved)):
            others = np.sort(np.delete(moved[:, number], one))
            count = int((~np.isnan(others)).sum())  # nan sorts last
            if count:
                effects[one, number] = min(others[(count - 1) // 2], others[count // 2], key=abs)
        return effects

    def _row_medians(self) -> Floats:
        ran, medians = ~np.isnan(self._measured).all(axis=1), np.zeros((len(self._measured), 1))
        medians[ran] = np.nanmedian(self._measured[ran], axis=1, keepdims=True)
        return medians

    def _usual_reference(self) -> int:
        counts = (~np.isnan(self._logs)).sum(axis=1)
        often = [one for one, count in enumerate(counts) if count and count == counts.max()]
        return max(often, key=lambda one: float(np.nanmedian(self._logs[one])), default=0)

    def _ratios(self, one: int, other: int) -> Floats:
        """Return the logarithms of `one` over `other`, one for each common round."""
        differences = self._logs[one] - self._logs[other]
        met: Floats = differences[~np.isnan(differences)]
        return met

    def _centre(self, one: int, other: int) -> float:
        ratios = self._ratios(one, other)
        if len(ratios):
            return float(np.median(walsh_averages(ratios)))
        if (third := self._common_opponent(one, other)) is not None:
            return self._told_apart(one, third) + self._told_apart(third, other)
        return float(np.nanmedian(self._logs[one]) - np.nanmedian(self._logs[other]))  # no configuration met both

    def _told_apart(self, one: int, other: int) -> float:
        """Return the centre of their log ratios, 0 if the interval includes 0: chance must not add up over a third."""
        estimate, low, high = self.ratio(one, other)
        return 0.0 if low <= 1 <= high else math.log(estimate)


def _joined(logs: Floats) -> Floats:
    """Return the rounds, with two successive rounds merged if no configuration ran in both."""
    joined, is_open = list[Floats](), False  # whether the last one may be merged with the next
    for column in logs.T:
        ran = ~np.isnan(column)
        if is_open and ran.any() and not (ran & ~np.isnan(joined[-1])).any():
            joined[-1], is_open = np.where(ran, column, joined[-1]), False
        else:
            joined.append(column)
            is_open = bool(ran.any())
    return np.array(joined).T if joined else logs


def _expected_excess(threshold: float, freedom: int) -> float:
    """Return the mean of max(0, t - threshold) for Student's t; infinite with one degree of freedom."""
    # Imported here: it takes as long as all else that `autotune report` does; scipy.stats would take a second.
    from scipy.special import gammaln, stdtr

    if freedom < 2:
        return math.inf
    logs = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - math.log(freedom * math.pi) / 2
    density = math.exp(logs) * (1 + threshold**2 / freedom) ** (-(freedom + 1) / 2)
    return float((freedom + threshold**2) / (freedom - 1) * density - threshold * stdtr(freedom, -threshold))


@lru_cache
def _signed_rank_cut(count: int, confidence: float) -> int:
    """Return the number of averages to leave out at each end; 0: too few rounds for this confidence.

    The signed-rank statistic of `count` values is a sum of ranks, each there or not with even chance.
    """
    ways = np.ones(1)
    for rank in range(1, count + 1):
        ways = np.convolve(ways, [1, *[0] * (rank - 1), 1])
    tail = np.cumsum(ways / 2.0**count)
    return max(0, int(np.searchsorted(tail, (1 - confidence) / 2, side="right")) - 1)


def _noise(logs: Floats) -> tuple[float, int]:
    """Return the standard deviation of one measurement and its degrees of freedom; nan and 0 if there are none.

    Model: log rate = configuration + round + noise, by least squares over what was measured (randomised block design,
    Montgomery, "Design and Analysis of Experiments"). The round takes up drift of the machine.
    """
    configurations, rounds = np.nonzero(~np.isnan(logs))
    values = logs[configurations, rounds]
    rows, design = np.arange(len(values)), np.zeros((len(values), sum(logs.shape)))
    design[rows, configurations] = 1
    design[rows, len(logs) + rounds] = 1
    effects, _, rank, _ = np.linalg.lstsq(design, values)
    freedom = len(values) - int(rank)
    squares = float(((values - design @ effects) ** 2).sum())
    return (math.sqrt(squares / freedom) if freedom else math.nan), freedom
