"""What each configuration came to: one rate with its interval, from all the probes that ran it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from autotune.records import Config
from autotune.results import Measurement, Trial
from autotune.tuning.disturbance import standing
from autotune.tuning.recommendation import Confirmation
from autotune.tuning.view import StudyView


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One configuration with all its probes that were measured.

    What the run-off measured again counts alone: the probe that brought a configuration there was lucky by selection.
    """

    config: Config
    samples_per_second: float  # of the run-off, as in best.json; else the geometric mean over its probes
    relative_half_width: float | None  # 95 %: of the run-off; else the widest of its probes, at least half their range
    peak_bytes: int  # largest
    data_wait_share: float  # mean, 0..1
    trials: tuple[Trial, ...]
    feasible: bool  # every probe of it was; one that failed speaks against it
    is_confirmed: bool

    @property
    def bounds(self) -> tuple[float, float]:
        """Samples/s at the ends of the interval; twice the rate itself where its width is unknown."""
        width = self.relative_half_width or 0.0
        return self.samples_per_second * max(0.0, 1 - width), self.samples_per_second * (1 + width)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """One per probe."""
        return tuple(trial.result.measurement for trial in self.trials if trial.result.measurement is not None)


@lru_cache(maxsize=1)  # every chart of a page asks for them
def standings(view: StudyView) -> tuple[Standing, ...]:
    """Every configuration that was measured at least once, in the order of their first probes."""
    best = view.recommendation
    confirmed = {one.config: one for one in best.confirmations} if best else {}
    width = best.relative_half_width if best else None
    probes: dict[Config, list[Trial]] = {}
    for trial, _ in standing([(trial, view.verdict(trial)) for trial in view.trials]):
        if trial.purpose != "reference":  # tells of the machine, at times when it had changed
            probes.setdefault(trial.config, []).append(trial)
    return tuple(
        _confirmed(view, confirmed[config], trials, width) if config in confirmed else _found(view, config, trials)
        for config, trials in probes.items()
        if any(trial.result.measurement is not None for trial in trials)
    )


def _confirmed(view: StudyView, confirmation: Confirmation, trials: list[Trial], width: float | None) -> Standing:
    counted = [trial for trial in trials if trial.number in confirmation.trials] or trials
    return Standing(
        config=confirmation.config,
        samples_per_second=confirmation.samples_per_second,
        relative_half_width=width,
        peak_bytes=confirmation.peak_bytes,
        data_wait_share=confirmation.data_wait_share,
        trials=_measured(counted),
        feasible=all(view.verdict(trial).feasible for trial in counted),
        is_confirmed=True,
    )


def _found(view: StudyView, config: Config, trials: list[Trial]) -> Standing:
    measured = [trial.result.measurement for trial in trials if trial.result.measurement is not None]
    rates = [one.samples_per_second for one in measured]
    mean = math.exp(sum(math.log(rate) for rate in rates) / len(rates))
    widths = [one.relative_half_width for one in measured if one.relative_half_width is not None]
    if len(rates) > 1:  # two that agree by luck do not make the rate as precise as that
        widths.append((max(rates) - min(rates)) / 2 / mean)
    return Standing(
        config=config,
        samples_per_second=mean,
        relative_half_width=max(widths, default=None),
        peak_bytes=max(one.memory.bytes for one in measured),
        data_wait_share=sum(one.data_wait_share for one in measured) / len(measured),
        trials=_measured(trials),
        feasible=view.verdict(trials[-1]).feasible,
        is_confirmed=False,
    )


def _measured(trials: list[Trial]) -> tuple[Trial, ...]:
    return tuple(trial for trial in trials if trial.result.measurement is not None)
