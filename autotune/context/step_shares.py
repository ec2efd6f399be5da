"""The shares of a step that probes have timed or counted: what takes next to nothing is not worth a change.

step    |loading|forward, backward ....... page faults ....|update|
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from statistics import fmean

from autotune.core.results import Measurement
from autotune.knobs import KNOBS, loader_workers
from autotune.study.history import History

# Share of a step: with more in the mean, the memory of tensors is given back after most steps. Where it is kept such a
# process trains faster, and some others do not (decisions/0084).
EVIDENT_FAULT_SHARE = 0.05


def loading_share(history: History) -> float | None:
    """Return the share of the fastest step without workers that loading takes, in the mean; None: never timed."""
    measured = [trial.result.measurement for trial, _ in history.judged if not loader_workers(trial.config)]
    timed = [(one, loading) for one in measured if one and (loading := one.loader_samples_per_second)]
    # What the window waited counts too: a loader may take its time every hundred batches, or as an epoch begins.
    loaded = [max(1 / loading, one.data_wait_share / one.samples_per_second) for one, loading in timed]
    fastest = max((one.samples_per_second for one, _ in timed), default=0.0)
    return fastest * fmean(loaded, [sum(one.step_seconds) for one, _ in timed]) if timed else None


def update_share(history: History) -> float | None:
    """Return the largest share of a step that updates took in a probe; None where they were not timed."""
    timed = [one for one in _measured(history) if one.update_seconds]
    shares = (sum(one.update_seconds) * one.steps_per_block / sum(one.step_seconds) for one in timed)
    return max(shares, default=None)


def fault_shares(history: History) -> tuple[float, ...]:
    """Return the share of its steps that page faults took in each probe that keeps no more memory than the baseline.

    One says little: how often a process gives memory back depends on where its first tensors happened to lie.
    """
    return _fault_shares(history, history.version)


@lru_cache(maxsize=1)  # asked for every configuration between two probes
def _fault_shares(history: History, version: int) -> tuple[float, ...]:
    baseline, names = history.request.baseline, keeping_knobs()
    plain = (
        trial.result.measurement
        for trial, _ in history.judged
        if all(trial.config[name] == baseline[name] for name in names)
    )
    return tuple(one.fault_share for one in plain if one is not None and one.fault_share is not None)


def keeping_knobs() -> list[str]:
    """Return the names of the knobs that do nothing but spare page faults."""
    return [one.name for one in KNOBS if one.spares_faults]


def evident_knobs(history: History) -> list[str]:
    """Return the names of the knobs whose worth counted page faults show, whatever single probes happen to say."""
    shares = fault_shares(history)
    return keeping_knobs() if shares and fmean(shares) >= EVIDENT_FAULT_SHARE else []


def _measured(history: History) -> Iterator[Measurement]:
    return (trial.result.measurement for trial, _ in history.judged if trial.result.measurement is not None)
