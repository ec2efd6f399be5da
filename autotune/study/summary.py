"""The summary of one configuration: its probes, its mean, and whether it may be recommended.

It is the only one. The search fills it with the probes of the search, the confirmation with those of its rounds, and a
finished study with those that count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from autotune.core.notices import Notice
from autotune.core.records import Config
from autotune.core.results import Measurement, Trial, Verdict
from autotune.core.rounds import Rounds
from autotune.core.stats import HALF_WIDTH_DEVIATIONS, mean_of_known, typical_rate

# A page fault may take so many times what `Measurement.fault_share` takes for one: 0.8 to 2.3 were seen.
FAULT_FACTORS = (1.0, 1.4, 1.8, 2.4)
MOST_FAULTS = 0.8  # of a step: a larger share of page faults is not plausible


class Status(Enum):
    """The last stage of a search that a configuration reached, or its end."""

    FOUND = "found"  # probed by the search, not measured again
    CONFIRMED = "confirmed"  # measured again to the end of the confirmation
    BEHIND = "behind"  # slower than others, which went on in the confirmation: it cannot win
    REFUSED = "refused"  # it runs, and may not be recommended
    FAILED = "failed"  # it failed when it was measured again


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The rates of one configuration in a confirmation: by its ratio to the baseline in the rounds that both ran."""

    score: float  # in the objective's unit
    samples_per_second: float
    relative_half_width: float | None = None  # 95 %, of samples_per_second; None: not known


@dataclass(frozen=True, kw_only=True)
class ConfigSummary:
    """One configuration with the probes that count for it. Statistics are derived; `compared` overrides the mean."""

    config: Config
    found: float | None = None  # its score in the search, corrected for drift; None: the search did not measure it
    expected: float | None = None  # its score by the sampler's model, before the confirmation; None: not asked
    trials: tuple[Trial, ...] = ()
    verdicts: tuple[Verdict, ...] = ()  # one per trial
    rounds: tuple[int, ...] = ()  # rounds of the confirmation in which each trial ran; empty: the first ones
    left_out: tuple[Trial, ...] = ()  # of the confirmation, because of interference; enough others are there
    refused: Notice | None = None  # why it may not be recommended although it runs; None: it may
    is_behind: bool = False  # it was slower and left the confirmation
    compared: Compared | None = None

    @property
    def status(self) -> Status:
        """The last stage of the search that it reached."""
        if self.failure:
            return Status.FAILED
        if self.refused:
            return Status.REFUSED
        if self.is_behind:
            return Status.BEHIND
        return Status.CONFIRMED if self.compared or self.rounds else Status.FOUND

    @property
    def failed(self) -> Notice | None:
        """The reason of its first trial that was not feasible; None if there is none."""
        return next((verdict.reason for verdict in self.verdicts if not verdict.feasible), None)

    @property
    def failure(self) -> str:
        """That reason on one line; empty if there is none."""
        return next((verdict.why for verdict in self.verdicts if not verdict.feasible), "")

    @property
    def feasible(self) -> bool:
        """Whether it may be used: after a confirmation by all of its trials, else by the last one."""
        return all(one.feasible for one in (self.verdicts if self.compared else self.verdicts[-1:]))

    @property
    def scores(self) -> list[float]:
        """The objective's score of each trial that has one."""
        return [verdict.value for verdict in self.verdicts if verdict.value is not None]

    @property
    def rates(self) -> list[float]:
        """The samples/s of each trial that was measured."""
        return [one.samples_per_second for one in self.measurements]

    def faultless_rates(self, factor: float) -> list[float]:
        """The samples/s of each trial, as if page faults, each `factor` times what one is taken for, took no time.

        If page faults were not counted, the rate is unchanged.
        """
        shares = (min(MOST_FAULTS, factor * (one.fault_share or 0.0)) for one in self.measurements)
        return [one.samples_per_second / (1 - share) for one, share in zip(self.measurements, shares, strict=True)]

    @property
    def score(self) -> float:
        """The typical score (`typical_rate`), in the objective's unit."""
        return self.compared.score if self.compared else typical_rate(self.scores)

    @property
    def samples_per_second(self) -> float:
        """The typical rate in samples/s; that of the comparison in rounds, where there was one."""
        return self.compared.samples_per_second if self.compared else typical_rate(self.rates)

    @property
    def tokens_per_second(self) -> float | None:
        """That rate in tokens/s, by the mean number of tokens in a sample; None: the target has no tokens."""
        tokens = [None if one.tokens is None else sum(one.tokens) / sum(one.samples) for one in self.measurements]
        mean = mean_of_known(tokens)
        return None if mean is None else mean * self.samples_per_second

    @property
    def relative_half_width(self) -> float | None:
        """The half width of the 95 % interval of samples/s, relative; None: not known.

        Outside a confirmation it is that of the widest window, and at least half the range of the rates: two rates that
        agree by chance do not make the rate that precise.
        """
        if self.compared:
            return self.compared.relative_half_width
        rates = self.rates
        widths = [one.relative_half_width for one in self.measurements if one.relative_half_width is not None]
        if len(rates) > 1:
            widths.append((max(rates) - min(rates)) / 2 / self.samples_per_second)
        return max(widths, default=None)

    @property
    def bounds(self) -> tuple[float, float]:
        """The samples/s at the ends of the interval; twice the rate itself if its width is unknown."""
        width = self.relative_half_width or 0.0
        return self.samples_per_second * max(0.0, 1 - width), self.samples_per_second * (1 + width)

    @property
    def measured(self) -> tuple[Trial, ...]:
        """The trials that have a measurement."""
        return tuple(trial for trial in self.trials if trial.result.measurement is not None)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The measurements, one per trial that has one."""
        return tuple(trial.result.measurement for trial in self.trials if trial.result.measurement is not None)

    @property
    def peak_bytes(self) -> int:
        """The largest peak of its trials, those left out included."""
        measured = (trial.result.measurement for trial in (*self.trials, *self.left_out))
        return max((one.memory.bytes for one in measured if one is not None), default=0)

    @property
    def data_wait_share(self) -> float:
        """The mean share of a step that is spent waiting for data, 0..1."""
        return mean_of_known([one.data_wait_share for one in self.measurements]) or 0.0

    def by_round(self, values: Sequence[float]) -> list[float | None]:
        """Return `values`, one per trial, at the positions of their rounds; None for rounds without it."""
        placed = dict(zip(self.rounds or range(len(values)), values, strict=True))
        return [placed.get(number) for number in range(max(placed, default=-1) + 1)]


def rounds_of(
    candidates: Sequence[ConfigSummary],
    kind: Literal["rates", "scores"] = "scores",
    reference: int | None = None,
) -> Rounds:
    """Return the rounds that these ran together, by samples/s or by the objective's scores."""
    rows = [one.by_round(getattr(one, kind)) for one in candidates]
    return Rounds(rows, reference, window_noise=window_noise(candidates))


def faultless_noise(candidates: Sequence[ConfigSummary]) -> float:
    """Return the noise of the rounds that these ran together, without the part that page faults may explain.

    The time of one fault is the same in all of them, and known only within bounds: the value that explains most is
    used.
    """
    window = window_noise(candidates)
    tables = ([one.by_round(one.faultless_rates(factor)) for one in candidates] for factor in FAULT_FACTORS)
    return min(Rounds(table, window_noise=window).noise for table in tables)


def window_noise(candidates: Sequence[ConfigSummary]) -> float:
    """Return the standard error of one window, relative: the root mean square of those that are known; 0 if none is."""
    windows = [window for one in candidates for window in one.measurements]
    known = [one.relative_half_width / HALF_WIDTH_DEVIATIONS for one in windows if one.relative_half_width is not None]
    return math.sqrt(mean_of_known([error**2 for error in known]) or 0.0)
