"""The shares of a step that probes have timed or counted: a part that takes next to nothing is not worth a change.

step    |loading|forward, backward ....... page faults ....|update|
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

from autotune.core.records import Config
from autotune.core.results import Measurement, Trial
from autotune.knobs import KNOBS, loader_workers, worker_knob
from autotune.knobs.changes import keeping_knobs, keeps_memory, variables
from autotune.objectives import objective_of
from autotune.study.history import History

UPDATE, FAULTS, LOADING = "the optimizer's update takes", "page faults take", "loading takes"
LEAST_SHARES = {
    UPDATE: 0.03,  # half of it saved is 1.5 %, less than most confirmations can show
    FAULTS: 0.02,  # in the probe with the most: avoiding all of them would be a tie (`choice.TIE`)
    LOADING: 0.01,  # hiding all of it would gain less than most confirmations can show
}
# The mean share of a step in page faults from which on keeping memory is expected to gain: `digits_cnn` and `resnet`
# have 13 % and more, and gain a fifth; `masked_lm` has 2 to 6 %, and gains 2 to 5 % (decisions/0084).
EVIDENT_FAULT_SHARE = 0.05
MOST_SPARED = 0.25  # of a step, by keeping memory: about the most that was measured (decisions/0084)
ERROR_OF_FAULTS = 0.5  # of the time that they take, relative, one standard error: as models differ (decisions/0084)
_SEARCHING = ("baseline", "search")  # purposes of probes before there are rounds


def short_part(history: History, config: Config) -> str:
    """Return the part of a step that a change of `config` could shorten and that is too short to gain; "": none is."""
    baseline = history.request.baseline
    short = _short_parts(history, history.version)
    return next((part for part, names in short.items() if any(config[one] != baseline[one] for one in names)), "")


def short_phrase(history: History, part: str) -> str:
    """Return `page faults take 0.3% of a step, too little to gain by malloc`."""
    means = {FAULTS: " by malloc", LOADING: " by workers"}.get(part, "")
    return f"{part} {_shares(history)[part] or 0.0:.1%} of a step, too little to gain{means}"


@lru_cache(maxsize=1)  # asked for every configuration between two probes
def _short_parts(history: History, version: int) -> dict[str, list[str]]:
    """Return the parts that are too short, with the knobs that shorten them; those that the user limited are obeyed."""
    goal, baseline = history.request.goal, history.request.baseline
    if not objective_of(goal).is_speed:
        return {}
    knobs = {
        UPDATE: [one.name for one in KNOBS if one.only_updates],
        FAULTS: keeping_knobs(),
        LOADING: [] if loader_workers(baseline) else [worker_knob().name],
    }
    return {
        part: [name for name in knobs[part] if name not in goal.limits]
        for part, share in _shares(history).items()
        if share is not None and share <= LEAST_SHARES[part]
    }


def _shares(history: History) -> dict[str, float | None]:
    faults = max(fault_shares(history), default=None)
    return {UPDATE: update_share(history), FAULTS: faults, LOADING: loading_share(history)}


def loading_share(history: History) -> float | None:
    """Return the mean share of a step that loading takes in the fastest step without workers; None if never timed."""
    measured = [trial.result.measurement for trial, _ in history.judged if not loader_workers(trial.config)]
    timed = [(one, loading) for one in measured if one and (loading := one.loader_samples_per_second)]
    # What the window waited counts too: a loader may take longer every hundred batches, or at the start of an epoch.
    loaded = [max(1 / loading, one.data_wait_share / one.samples_per_second) for one, loading in timed]
    fastest = max((one.samples_per_second for one, _ in timed), default=0.0)
    return fastest * fmean(loaded, [sum(one.step_seconds) for one, _ in timed]) if timed else None


def update_share(history: History) -> float | None:
    """Return the largest share of a step that updates took in a probe; None if they were not timed."""
    timed = [one for one in _measured(history) if one.update_seconds]
    shares = (sum(one.update_seconds) * one.steps_per_block / sum(one.step_seconds) for one in timed)
    return max(shares, default=None)


def fault_shares(history: History) -> tuple[float, ...]:
    """Return the share of its steps in page faults, for each probe that keeps no more memory than the baseline.

    Only probes of the search count, so that nothing changes while rounds run. One probe says little: how often a
    process gives memory back depends on the addresses of its first tensors.
    """
    return _fault_shares(history, history.version)[0]


@lru_cache(maxsize=1)  # asked for every configuration between two probes
def _fault_shares(history: History, version: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the shares of probes that keep no memory, and of those that do."""
    plain, keeping = list[float](), list[float]()
    for trial, _ in history.judged:
        measured = trial.result.measurement
        if trial.purpose in _SEARCHING and measured is not None and measured.fault_share is not None:
            (keeping if keeps_memory(trial.config, history.request.baseline) else plain).append(measured.fault_share)
    return tuple(plain), tuple(keeping)


def evident_knobs(history: History) -> list[str]:
    """Return the names of the knobs whose gain counted page faults show, whatever single probes say.

    There are none if probes that keep memory have nearly as many: mapped files cause such faults too.
    """
    plain, keeping = _fault_shares(history, history.version)
    if not plain or fmean(plain) < EVIDENT_FAULT_SHARE:
        return []
    return [] if keeping and fmean(keeping) > fmean(plain) / 2 else keeping_knobs()


@dataclass(frozen=True, kw_only=True)
class PageFaults:
    """What the page faults that a search counted say of keeping memory; all zero if they say nothing."""

    usual_share: float = 0.0  # mean share of a step that they took in probes that keep no memory
    spared_share: float = 0.0  # share of a step that keeping memory spares

    def luck(self, trials: Iterable[Trial]) -> float:
        """Return the share by which these probes, which keep no memory, were faster because they had fewer than usual.

        Probes that had more than usual are not corrected.
        """
        measured = (trial.result.measurement for trial in trials)
        own = [one.fault_share for one in measured if one is not None and one.fault_share is not None]
        return min(max(0.0, self.usual_share - fmean(own)), MOST_SPARED) if own else 0.0

    @property
    def gain(self) -> float:
        """The logarithm of the ratio that keeping memory gains if it spares these faults."""
        return -math.log1p(-self.spared_share)

    def gain_beside(self, seen: float, error: float, luck: float) -> tuple[float, float]:
        """Return what keeping memory gains by what was measured and by these faults, and its standard error.

        All are logarithms of ratios: `seen` was measured, give or take `error`, beside probes with so much `luck`. The
        two are weighted by their precision.
        """
        seen, error = seen - math.log1p(-luck), math.hypot(error, ERROR_OF_FAULTS * luck)
        of_faults = ERROR_OF_FAULTS * self.spared_share
        gain = fmean((seen, self.gain), (of_faults**2, error**2))  # each by the other's variance
        return gain, error * of_faults / math.hypot(error, of_faults)


def page_faults(history: History) -> PageFaults:
    """Return what the page faults of the search say; nothing if they do not show what keeping memory gains."""
    plain, keeping = _fault_shares(history, history.version)
    if not evident_knobs(history):
        return PageFaults()
    usual = fmean(plain)
    return PageFaults(usual_share=usual, spared_share=min(usual - fmean(keeping or [0.0]), MOST_SPARED))


def unproven_variables(history: History, config: Config) -> list[str]:
    """Return the names of the knobs that set environment variables which counted page faults do not justify."""
    evident = evident_knobs(history)
    return [name for name in variables(config, history.request.baseline) if name not in evident]


def _measured(history: History) -> Iterator[Measurement]:
    return (trial.result.measurement for trial, _ in history.judged if trial.result.measurement is not None)
