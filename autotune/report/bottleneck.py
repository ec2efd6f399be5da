"""Finds the bottleneck of a step, computing or loading, from the time of each alone and of both together."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.answer.reasons import LOADER_BOUND
from autotune.core.records import Config
from autotune.core.stats import mean_of_known
from autotune.knobs import loader_workers
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries
from autotune.units import format_share

LIMITING_SHARE = 0.5  # of a step: the part that takes more of a serial step limits it


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Samples/s of one configuration; None: not timed separately."""

    together: float
    computing: float | None
    loading: float | None


def rates_of(one: ConfigSummary) -> Rates:
    """Return the mean rates of its probes: of whole steps, of the model on one batch, of the loader alone."""
    return Rates(
        together=one.samples_per_second,
        computing=mean_of_known([measured.compute_samples_per_second for measured in one.measurements]),
        loading=mean_of_known([measured.loader_samples_per_second for measured in one.measurements]),
    )


def loader_workers_of(config: Config) -> int:
    """Return the number of loader workers; 0 also if the study's value is not a number."""
    try:
        return loader_workers(config)
    except ValueError:
        return 0


def bottleneck_of(view: StudyView) -> str:
    """Return the bottleneck of the answer in words, to follow `Bottleneck`; empty without its probes or a loader."""
    best = view.recommendation
    own = next((one for one in summaries(view) if best and one.config.values == best.params), None)
    if not best or not own or not view.request.facts.tunes_loader:
        return ""
    return bottleneck(own, best.data_wait_share).replace(" is the bottleneck", "", 1)


def bottleneck(one: ConfigSummary, wait_share: float) -> str:
    """Return `computing is the bottleneck: 95% of a step, waiting for data 5%`, or another limit of a step.

    Without workers a step loads, then computes: the larger part is the bottleneck. With workers both happen at once:
    loading is the bottleneck if the loader alone is slower than the model alone; otherwise the two compete for the same
    cores.
    """
    rates, waiting = rates_of(one), f"waiting for data {format_share(wait_share)}"
    computing = f"computing is the bottleneck: {format_share(1 - wait_share)} of a step, {waiting}"
    if wait_share <= LOADER_BOUND:
        return computing
    if not loader_workers_of(one.config):
        found = computing if wait_share <= LIMITING_SHARE else f"loading is the bottleneck: {waiting} of a step"
        return f"{found}; workers could overlap it"
    if rates.computing is None or rates.loading is None or rates.loading < rates.computing:
        gain = f"; without waiting about {_about(1 / (1 - wait_share))}× as fast" if wait_share < 1 else ""
        return f"loading is the bottleneck: {waiting} of a step{gain}"
    return f"computing and loading share the cores: {waiting} of a step"


def _about(factor: float) -> str:
    """Return the factor with two digits, because it comes from a share in whole per cent."""
    return f"{float(f'{factor:.2g}'):g}"
