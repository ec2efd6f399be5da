"""The model-based sampler as Optuna sees it. It keeps no state: all its knowledge is in the trials of the study."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any

import msgspec
import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import threadpool_limits

from autotune.core.probe_duration import ProbeDuration
from autotune.core.records import Value
from autotune.memory.model import PredictedPeak
from autotune.sampler import acquisition
from autotune.sampler.acquisition import Forecast
from autotune.sampler.data import PeakOfRow, gather
from autotune.sampler.grid import Floats, Grid, Hardware, Integers
from autotune.sampler.observation import ATTRIBUTE, Observation, recalled
from autotune.sampler.performance_model import PerformanceModel
from autotune.sampler.posterior import fit_posterior
from autotune.sampler.prediction import Prediction

# Matrices of a hundred columns: a second thread of the BLAS spins for more time than it saves, the more so where other
# processes want the cores (250 ms of processor time a proposal with two threads, 130 with one). The limit applies to
# the whole process, so that the thread that restores it must be the one that set it.
_ONE_AT_A_TIME = Lock()
ROUNDING = 1e-3  # relative; values of a sample/s that differ by no more are the same


@dataclass(frozen=True)
class Knee:
    """The knee that is sought where the global batch is free."""

    share: float  # of the fastest rate that may be given up for a smaller global batch
    least: int  # samples per optimizer step of a rank: a smaller global batch than this, the baseline's, is no gain


@dataclass(frozen=True)
class _Trials:
    observations: Sequence[tuple[int, Observation]]  # of finished trials that did not fail
    values: Sequence[float | None]  # of these trials
    running: Integers
    finished: int  # trials, failed ones too

    @cached_property
    def measured(self) -> Integers:
        """The rows that ran and fit."""
        rows = [row for row, seen in self.observations if seen.within_memory and seen.samples_per_second]
        return np.array(rows, np.int64)

    @property
    def limit_bytes(self) -> int | None:
        """The usable memory according to the latest observation."""
        return next((seen.limit_bytes for _, seen in reversed(self.observations) if seen.limit_bytes), None)

    @property
    def is_throughput(self) -> bool:
        """Whether the study's values are samples/s in some unit, up to rounding."""
        pairs = zip(self.observations, self.values, strict=True)
        units = [
            value / seen.samples_per_second / seen.training_share
            for (_, seen), value in pairs
            if value and seen.samples_per_second
        ]
        return not units or max(units) <= (1 + ROUNDING) * min(units)


@dataclass(frozen=True)
class _Fitted:
    known: _Trials
    forecast: Forecast  # rates in units of the study's value, where the value of a sample is known
    value_per_sample: Floats  # value of one sample/s, per row
    is_score: bool  # the study maximises the forecast's rates, in some unit
    chance: np.random.Generator
    seconds: Floats  # of one micro-batch, expected; per row

    def prediction(self, best: Floats, row: int) -> Prediction:
        """Return the forecast for one row; `best` is the incumbent's rate in every particle."""
        value = float(self.value_per_sample[row])
        found = acquisition.prediction(self.forecast, best, row, self.known.limit_bytes, value)
        return found if self.is_score else msgspec.structs.replace(found, gain=None)


class StructuredSampler(BaseSampler):
    """A sampler that proposes the configuration that its model, fitted to all probes, expects to be fastest and to fit.

    The study maximises samples/s, or a score for which samples/s are the best guess, as samples per joule. Proposals
    follow from the seed and the finished trials, and are never those of trials that are still running.
    """

    def __init__(
        self, *, seed: int, hardware: Hardware, grid: Grid, space: dict[str, BaseDistribution],
        admits: Callable[[int], bool], dry_run: PeakOfRow | None = None,
        value_per_sample: Callable[[int], float] | None = None,
        probe_duration: Callable[[], ProbeDuration] | None = None, knee: Knee | None = None,
        setup_seconds: Callable[[int], float] | None = None,
    ) -> None:  # fmt: skip
        """`space` holds the parameters of every trial, `grid` their combinations, `admits` which rows may be proposed.

        `dry_run` predicts the memory of a row. `value_per_sample` is the study's value for one sample/s of a row, where
        it is known beforehand. `probe_duration` tells at any time how long a probe takes; None: all take as long.
        `setup_seconds` is what the next probe of a row takes besides; None: none does.
        `knee`: the smallest global batch that is fast enough is sought; None: the fastest row.
        """
        self._knee = knee
        self._probe_duration, self._setup_seconds = probe_duration, setup_seconds
        self._seed, self._hardware, self._grid, self._space = seed, hardware, grid, space
        self._admits, self._dry_run, self._value_per_sample = admits, dry_run, value_per_sample
        self._model = PerformanceModel(grid, hardware)
        self.prediction: Prediction | None = None  # for the latest proposal

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the whole space, from the first trial on."""
        return self._space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the most promising configuration that is admitted and not running."""
        fitted = self._fitted(self._model, _known(study, self._grid, trial.number))
        known, forecast = fitted.known, self._aim(fitted.forecast)
        best = acquisition.incumbents(forecast, acquisition.rivals(forecast, known.measured, known.running))
        gain, running = acquisition.gains(forecast, best), set(known.running.tolist())
        seconds, most = self._durations(fitted)
        order = acquisition.ranked(forecast, gain, self._grid.workers, seconds + self._compiling())
        possible = (row for row in order.tolist() if row not in running and self._admits(row))
        row = self._first_within(possible, seconds, most, default=int(order[0]))
        found = fitted.prediction(best, row)
        if found.gain is not None:
            own, most_gain = float(gain[row] / best.mean()), self._most_gain(gain, best, running)
            found = msgspec.structs.replace(found, gain=own, most_gain=most_gain)
        self.prediction = found
        return dict(self._grid.params[row])

    def _aim(self, forecast: Forecast) -> Forecast:
        """Return the forecast of what may be the answer."""
        if self._knee is None:
            return forecast
        return acquisition.up_to_knee(forecast, self._model.all_rows.samples, self._knee.share, self._knee.least)

    def _durations(self, fitted: _Fitted) -> tuple[Floats, float]:
        """Return the expected seconds of a probe of every row without compiling, and the most that one may take."""
        if self._probe_duration is None:
            return np.ones(len(self._grid)), np.inf
        duration = self._probe_duration()
        return duration.seconds(fitted.seconds, self._grid.accumulation), duration.most_seconds

    def _compiling(self) -> Floats:
        """Return the seconds that the next probe of every row compiles."""
        found = np.zeros(len(self._grid))
        if self._setup_seconds is not None:
            for row in np.flatnonzero(self._grid.compiles):
                found[row] = self._setup_seconds(int(row))
        return found

    def _most_gain(self, gain: Floats, best: Floats, running: set[int]) -> float | None:
        """Return the largest gain that a probe could have now, as a share of the best so far."""
        rows = np.argsort(-gain, kind="stable").tolist()
        top = next((row for row in rows if row not in running and self._admits(row)), None)
        incumbent = float(best.mean())
        return float(gain[top]) / incumbent if top is not None and incumbent > 0 else None

    @staticmethod
    def _first_within(rows: Iterable[int], seconds: Floats, most: float, default: int) -> int:
        """Return the first of the rows whose probe takes no longer than that; if there is none, the shortest."""
        shortest, least = default, np.inf
        for row in rows:
            if seconds[row] <= most:
                return row
            if seconds[row] < least:
                shortest, least = row, seconds[row]
        return shortest

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Raise: `sample_relative` leaves no parameter out."""
        raise AssertionError(f"{param_name} is not in the space")

    def faster_elsewhere(self, study: optuna.Study) -> float:
        """Return the share by which no admitted configuration is expected to beat the best measured one (90 %).

        0.04 is 4 %; infinite if nothing was measured, or the study maximises what the model does not predict.
        """
        fitted = self._fitted(self._model, _known(study, self._grid))
        if not fitted.is_score:
            return float("inf")
        open_rows = np.array([self._admits(row) for row in range(len(self._grid))])
        open_rows[fitted.known.running] = False
        return acquisition.faster_elsewhere(fitted.forecast, fitted.known.measured, open_rows, fitted.chance)

    def expected(self, study: optuna.Study, values: Sequence[Mapping[str, Value]]) -> list[Prediction]:
        """Return forecasts for configurations between those of the grid, given as values of every knob.

        Empty if nothing was measured, or if the value per sample was given, which is known for the grid only.
        """
        known = _known(study, self._grid)
        if self._value_per_sample is not None or not len(known.measured):
            return []
        model = PerformanceModel(self._grid.widened(values), self._hardware)
        fitted = self._fitted(model, known)
        best = acquisition.incumbents(fitted.forecast, known.measured)
        return [fitted.prediction(best, row) for row in range(len(self._grid), len(model.grid))]

    def _fitted(self, model: PerformanceModel, known: _Trials) -> _Fitted:
        chance = np.random.default_rng([self._seed, known.finished])
        data = gather(model, known.observations, self._predicted_peak)
        with _ONE_AT_A_TIME, threadpool_limits(1, user_api="blas"):
            forecast = acquisition.predict(model, fit_posterior(model, data, chance), chance)
        seconds = model.grid.batch * (1 / forecast.rates).mean(0)
        if self._value_per_sample is None:
            return _Fitted(known, forecast, np.ones(len(model.grid)), known.is_throughput, chance, seconds)
        values = np.array([self._value_per_sample(row) for row in range(len(model.grid))])
        return _Fitted(known, replace(forecast, rates=forecast.rates * values), values, True, chance, seconds)

    def _predicted_peak(self, row: int) -> PredictedPeak | None:
        """Return the memory that a dry run predicts; None for rows beyond the grid, which it did not look at."""
        return self._dry_run(row) if self._dry_run is not None and row < len(self._grid) else None


def _known(study: optuna.Study, grid: Grid, own: int | None = None) -> _Trials:
    """Return what the trials say, without the trial numbered `own`, which is about to be proposed."""
    observations, values, running, finished = [], [], [], 0
    for trial in study.get_trials(deepcopy=False):
        row = grid.row(trial.params)
        if trial.state.is_finished():
            finished += 1
        elif row is not None and trial.number != own:
            running.append(row)
        if row is not None and trial.state is not TrialState.FAIL and ATTRIBUTE in trial.user_attrs:
            observations.append((row, recalled(trial.user_attrs)))
            values.append(trial.value if trial.state is TrialState.COMPLETE else None)
    return _Trials(observations, values, np.array(running, np.int64), finished)
