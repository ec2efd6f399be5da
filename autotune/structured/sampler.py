"""The structured sampler as Optuna sees it: stateless, everything it knows is in the study's trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import msgspec
import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import threadpool_limits

from autotune.prediction import Prediction
from autotune.records import Value
from autotune.structured import acquisition
from autotune.structured.acquisition import Mask, Outlook
from autotune.structured.evidence import Foretell, gather
from autotune.structured.grid import Floats, Grid, Hardware, Integers
from autotune.structured.law import Law
from autotune.structured.observation import Observation, recalled
from autotune.structured.posterior import believe
from autotune.structured.spaces import grid_of
from autotune.structured.worth import worths

PREDICTION = "prediction"  # trial attribute that holds a `Prediction` as JSON
# Matrices of a hundred columns: a second thread of the BLAS spins for more time than it saves, the more so where others
# want the cores (250 ms of processor time a proposal with two, 130 with one). The limit is the process's: whoever
# restores it must have set it.
_ONE_AT_A_TIME = Lock()
MOST_FAILURES = 2  # of one configuration: what failed for no reason of its own is tried once more


@dataclass
class _Known:
    """What the trials of a study say about the rows of a grid."""

    observations: list[tuple[int, Observation]] = field(default_factory=list)
    visited: set[int] = field(default_factory=set)
    running: list[int] = field(default_factory=list)
    worths: list[tuple[int, float]] = field(default_factory=list)  # rows, and their value for one sample/s
    undecided: int = 0  # trials that were begun before this one and have no parameters yet
    finished: int = 0

    @property
    def measured(self) -> Integers:
        """Rows that ran and fit."""
        rows = [row for row, seen in self.observations if seen.within_memory and seen.samples_per_second]
        return np.array(rows, np.int64)

    @property
    def limit_bytes(self) -> int | None:
        """What may be used, as the latest observation has it."""
        return next((seen.limit_bytes for _, seen in reversed(self.observations) if seen.limit_bytes), None)


class StructuredSampler(BaseSampler):
    """Proposes what a law of training, fitted to all probes so far, expects to be fastest and to fit.

    Parameters that bear the names of knobs (`batch_size`, `num_workers`, `amp_dtype`, ...) are understood, others are
    learned as categories. The study's value is a throughput to maximise, or seconds per sample to minimise; an
    `Observation` among the trial's attributes tells more, and beside its rate the value may be whatever samples/s are
    worth, as samples per joule. Proposals depend on `seed` and on the finished trials only,
    and are never those of trials that are still running.
    """

    def __init__(
        self, *, hardware: Hardware | None = None, seed: int | None = None, grid: Grid | None = None,
        space: dict[str, BaseDistribution] | None = None, admits: Callable[[int], bool] | None = None,
        foretold: Foretell | None = None, worth: Callable[[int], float] | None = None,
    ) -> None:  # fmt: skip
        """`space`: of all trials, if known beforehand; else the first trial is drawn at random.

        `grid` and `admits` narrow the choice further: to the rows of a grid, and to those of them that are admitted.
        `foretold` is what a dry run says of the memory of a row, if there was one; `worth` the study's value for one
        sample/s of a row, if that is known beforehand: else it is learned.
        """
        self._hardware, self._grid, self._space, self._admits = hardware or Hardware(), grid, space, admits
        self._foretold, self._worth = foretold, worth
        self._seed = seed if seed is not None else int(np.random.default_rng().integers(2**31))
        self._random = RandomSampler(seed=self._seed)
        self._law: Law | None = None
        self._law_of: dict[str, BaseDistribution] = {}

    def reseed_rng(self) -> None:
        """Of the random draws outside the model; the model's own follow from the seed and the trials."""
        self._random.reseed_rng()

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """What was given, or what all finished trials share."""
        return self._space if self._space is not None else IntersectionSearchSpace().calculate(study)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The most promising configuration; why is kept as attribute `prediction` of the trial."""
        _check_single(study)
        if not search_space:
            return {}
        law = self._law_on(study, search_space)
        known = _known(study, trial, law.grid, search_space)
        outlook, chance, worth = self._outlook(law, known)
        best = acquisition.incumbents(
            outlook, acquisition.rivals(outlook, known.measured, np.array(known.running, np.int64))
        )
        order = acquisition.ranked(outlook, best, law.grid.workers)
        closed = self._closed(law, known)
        row = acquisition.first(order, lambda row: row not in closed and self._is_admitted(row), known.undecided)
        if row is None:  # everything was tried: again, then
            row = int(order[int(chance.integers(len(order)))])
        said = acquisition.prediction(outlook, best, row, known.limit_bytes, float(worth[row]))
        study._storage.set_trial_user_attr(trial._trial_id, PREDICTION, msgspec.to_builtins(said))
        return dict(law.grid.params[row])

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """At random, for parameters that nothing is known about yet."""
        _check_single(study)
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def faster_elsewhere(self, study: optuna.Study) -> float:
        """By which share no other configuration is expected to be faster than the best measured one (90 %).

        0.04 says 4 %; infinite if nothing was measured.
        """
        space = self.infer_relative_search_space(study, study.trials[-1]) if study.trials else {}
        if not space:
            return float("inf")
        law = self._law_on(study, space)
        known = _known(study, None, law.grid, space)
        outlook, chance, _ = self._outlook(law, known)
        closed = self._closed(law, known)
        open_rows = np.array([row not in closed and self._is_admitted(row) for row in range(len(law.grid))])
        return acquisition.faster_elsewhere(outlook, known.measured, open_rows, chance)

    def foreseen(self, study: optuna.Study, groups: Integers) -> list[tuple[int, Prediction]]:
        """In every group the row that is expected to be worth most, and what is expected of it.

        `groups` holds a number for every row of the grid that this sampler was made with. Empty if nothing was
        measured: then only the prior could speak.
        """
        space = self.infer_relative_search_space(study, study.trials[-1]) if study.trials else {}
        if not space:
            return []
        law = self._law_on(study, space)
        known = _known(study, None, law.grid, space)
        if not len(known.measured):
            return []
        outlook, _, worth = self._outlook(law, known)
        best, medians = acquisition.incumbents(outlook, known.measured), np.median(outlook.rates, axis=0)
        rows = [int(inside[medians[inside].argmax()]) for inside in map(np.flatnonzero, _masks(groups))]
        return [(r, acquisition.prediction(outlook, best, r, known.limit_bytes, float(worth[r]))) for r in rows]

    def expected(self, study: optuna.Study, values: Sequence[Mapping[str, Value]]) -> list[Prediction]:
        """What is expected of configurations that lie between those of the grid; empty if nothing was measured.

        `values` has for each a value of every knob. For a sampler that was made with a grid; also empty where worths
        were given, which are known of the grid only.
        """
        assert self._grid is not None and self._space is not None, "between which points?"
        if self._worth is not None:
            return []
        law = Law(self._grid.widened(values), self._hardware)
        known = _known(study, None, law.grid, self._space)
        if not len(known.measured):
            return []
        outlook, _, worth = self._outlook(law, known)
        best, first = acquisition.incumbents(outlook, known.measured), len(self._grid)
        return [
            acquisition.prediction(outlook, best, row, known.limit_bytes, float(worth[row]))
            for row in range(first, len(law.grid))
        ]

    def _outlook(self, law: Law, known: _Known) -> tuple[Outlook, np.random.Generator, Floats]:
        """What is believed, in units of the study's value; and what a sample/s is worth in each row."""
        chance = np.random.default_rng([self._seed, known.finished])
        evidence = gather(law, known.observations, self._told)
        with _ONE_AT_A_TIME, threadpool_limits(1, user_api="blas"):
            outlook = acquisition.foresee(law, believe(law, evidence, chance), chance)
        worth = worths(law.grid, known.worths) if self._worth is None else self._known_worths(law, self._worth)
        if worth is None:
            return outlook, chance, np.ones(len(law.grid))
        return replace(outlook, rates=outlook.rates * worth), chance, worth

    @property
    def _told(self) -> Foretell | None:
        """What a dry run said, of the rows that it was asked for."""
        told, grid = self._foretold, self._grid
        return None if told is None else lambda row: told(row) if grid is None or row < len(grid) else None

    def _known_worths(self, law: Law, worth: Callable[[int], float]) -> Floats:
        return np.array([worth(row) for row in range(len(law.grid))])

    def _is_admitted(self, row: int) -> bool:
        return self._admits is None or self._admits(row)

    def _closed(self, law: Law, known: _Known) -> set[int]:
        """Rows that were probed or are being probed, and those that need no less memory than one that did not fit."""
        closed = known.visited | set(known.running)
        for row, seen in known.observations:
            if seen.within_memory is False:
                arm = law.memory_arms == law.memory_arms[row]
                closed |= set(np.flatnonzero(arm & (law.grid.batch >= law.grid.batch[row])).tolist())
        return closed

    def _law_on(self, study: optuna.Study, space: Mapping[str, BaseDistribution]) -> Law:
        """The law on the grid of `space`; made anew only where the space or a trial between its points is new."""
        known = [params for trial in study.get_trials(deepcopy=False) if (params := _within(trial, space)) is not None]
        law = self._law
        if law is None or (self._grid is None and not _covers(law.grid, self._law_of, space, known)):
            law = Law(self._grid or grid_of(space, known, self._seed), self._hardware)
            self._law, self._law_of = law, dict(space)
        return law


def _covers(
    grid: Grid,
    made_of: Mapping[str, BaseDistribution],
    space: Mapping[str, BaseDistribution],
    known: list[dict[str, Any]],
) -> bool:
    return made_of == space and all(grid.row(params) is not None for params in known)


def _masks(groups: Integers) -> list[Mask]:
    return [groups == number for number in np.unique(groups)]


def predicted(study: optuna.Study, number: int) -> Prediction | None:
    """What was expected of trial `number`, if its sampler said so; read from the storage, a `Trial` does not see it."""
    attributes = study.get_trials(deepcopy=False)[number].user_attrs
    if PREDICTION not in attributes:
        return None
    found: Prediction = msgspec.convert(attributes[PREDICTION], Prediction)
    return found


def _known(study: optuna.Study, own: FrozenTrial | None, grid: Grid, space: Mapping[str, BaseDistribution]) -> _Known:
    known, failures = _Known(), Counter[int]()
    minimised = study.direction is StudyDirection.MINIMIZE
    for trial in study.get_trials(deepcopy=False):
        if own is not None and trial.number == own.number:
            continue
        params = _within(trial, space)
        row = grid.row(params) if params is not None else None
        if not trial.state.is_finished():
            known.undecided += params is None and trial.state is TrialState.RUNNING and _before(trial, own)
            if row is not None:
                known.running.append(row)
            continue
        known.finished += 1
        if row is None:
            continue
        if trial.state is TrialState.FAIL:
            failures[row] += 1
            continue
        value = trial.value if trial.state is TrialState.COMPLETE else None
        if value is not None and minimised:
            value = 1 / value if value > 0 else None
        known.visited.add(row)
        seen = recalled(trial.user_attrs, value)
        known.observations.append((row, seen))
        if value and seen.samples_per_second and value > 0:
            known.worths.append((row, value / seen.samples_per_second))
    known.visited |= {row for row, count in failures.items() if count >= MOST_FAILURES}
    return known


def _before(trial: FrozenTrial, own: FrozenTrial | None) -> bool:
    return own is None or trial.number < own.number


def _within(trial: FrozenTrial, space: Mapping[str, BaseDistribution]) -> dict[str, Any] | None:
    """The trial's parameters, if it has all that are asked for, within their distributions."""
    if any(name not in trial.params for name in space):
        return None
    params = {name: trial.params[name] for name in space}
    contained = all(space[name]._contains(space[name].to_internal_repr(value)) for name, value in params.items())
    return params if contained else None


def _check_single(study: optuna.Study) -> None:
    if len(study.directions) > 1:
        raise ValueError(
            f"StructuredSampler optimises one value, this study has {len(study.directions)}. Throughput and memory are "
            f"both among what it predicts. Create the study with one direction."
        )
