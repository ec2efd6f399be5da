"""The model-based sampler as Optuna sees it. It keeps no state: all its knowledge is in the trials of the study."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from autotune.core.records import Config, Value
from autotune.core.stats import Floats
from autotune.memory.model import PredictedPeak
from autotune.sampler import acquisition
from autotune.sampler.acquisition import Predictions
from autotune.sampler.candidates import CLIMBER_COUNT, climbed, known_candidates
from autotune.sampler.configurations import Points, distinct
from autotune.sampler.encoding import Encoding
from autotune.sampler.fitted_data import gather
from autotune.sampler.grid import Grid, Hardware, Integers, widened
from autotune.sampler.observation import ATTRIBUTE, recalled
from autotune.sampler.performance_model import PerformanceModel
from autotune.sampler.posterior import Fit, fit, posterior_of
from autotune.sampler.prediction import Prediction
from autotune.sampler.trials import Trials, most_telling

# Matrices have a hundred columns: a second thread of the BLAS spins for more time than it saves, above all where other
# processes want the cores (250 ms of processor time a proposal with two threads, 130 with one). The limit applies to
# the whole process, so the thread that set it must restore it.
_ONE_AT_A_TIME = Lock()
MOST_PREDICTED_PEAKS = 128  # memory groups of candidates that a shape run predicts, in the order of the candidates


@dataclass(frozen=True)
class Knee:
    """The knee that is sought where the global batch is free."""

    share: float  # of the fastest rate, which may be given up for a smaller global batch
    least: int  # samples per optimizer step of a rank: a smaller global batch than this, the baseline's, is no gain


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """The knowledge of a search besides its probes; functions are called again for every proposal."""

    shape_run: Callable[[Config], PredictedPeak | None] | None = None  # the memory of a configuration, where predicted
    value_per_sample: Callable[[Config], float] | None = None  # score for one sample/s, where known beforehand
    probe_duration: Callable[[], ProbeDuration] | None = None  # of probes now; None: all take equally long
    compiling_seconds: Callable[[Config], float] | None = None  # seconds that the next probe takes longer; None: 0
    baseline: Config | None = None  # changes to it decide between otherwise equal configurations
    knee: Knee | None = None  # the smallest global batch that is fast enough is sought; None: the fastest


NOTHING_ELSE = Knowledge()


@dataclass(frozen=True)
class _Fitted:
    known: Trials
    model: PerformanceModel  # of the candidates, those probed and running first
    points: Points  # of the rows that are candidates
    predictions: Predictions  # rates in units of the study's value, where the value of a sample is known
    value_per_sample: Floats  # value of one sample/s, per row
    is_score: bool  # the study maximises the predicted rates, in some unit
    chance: np.random.Generator

    @cached_property
    def seconds(self) -> Floats:
        """The expected seconds of one micro-batch, per row."""
        found: Floats = self.model.grid.batch * (self.value_per_sample / self.predictions.rates).mean(0)
        return found

    def prediction(self, best: Floats, row: int) -> Prediction:
        """Return the prediction for one row; `best` is the incumbent's rate in every particle."""
        value = float(self.value_per_sample[row])
        found = acquisition.prediction(self.predictions, best, row, self.known.limit_bytes, value)
        return found if self.is_score else msgspec.structs.replace(found, gain=None)


class StructuredSampler(BaseSampler):
    """A sampler that proposes the configuration that its model, fitted to all probes, expects to be fastest and to fit.

    The study maximises samples/s, or a score for which samples/s are the best guess, as samples per joule. Proposals
    follow from the seed and the finished trials, and are never those of trials that are still running.
    """

    def __init__(
        self, *, seed: int, hardware: Hardware, encoding: Encoding, admits: Callable[[Config], bool],
        knowledge: Knowledge,
    ) -> None:  # fmt: skip
        """`encoding` knows the space, `admits` which of its configurations may be proposed."""
        self._seed, self._hardware, self._encoding, self._configs = seed, hardware, encoding, encoding.configs
        self._admits, self._knowledge = admits, knowledge
        self.prediction: Prediction | None = None  # for the latest proposal

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the whole space, from the first trial on."""
        return self._encoding.distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the most promising configuration that is admitted and not running."""
        fitted = self._fitted(self._known(study, trial.number))
        known, predictions, grid = fitted.known, self._aim(fitted), fitted.model.grid
        best = acquisition.incumbents(predictions, acquisition.rivals(predictions, known.measured, known.running_rows))
        gain = acquisition.gains(predictions, best)
        seconds, most = self._durations(fitted)
        order = acquisition.ranked(
            predictions, gain, grid.workers, self._changes(fitted), seconds + self._compiling(fitted)
        )
        row = self._first_within(self._open(fitted, order), seconds, most, default=int(order[0]))
        found = fitted.prediction(best, row)
        if found.gain is not None:
            own, most_gain = float(gain[row] / best.mean()), self._most_gain(gain, best, fitted)
            found = msgspec.structs.replace(found, gain=own, most_gain=most_gain)
        self.prediction = found
        params = self._encoding.params(self._configs.at(fitted.points[row]))
        assert params is not None, "every configuration of a space has parameters"
        return params

    def _open(self, fitted: _Fitted, order: Integers) -> Iterator[int]:
        """Yield the rows that may be proposed, in this order."""
        running = set(fitted.known.running_rows.tolist())
        return (
            row for row in order.tolist() if row not in running and self._admits(self._configs.at(fitted.points[row]))
        )

    def _aim(self, fitted: _Fitted) -> Predictions:
        """Return the predictions, with a rate of 0 where a row cannot be the answer."""
        if (knee := self._knowledge.knee) is None:
            return fitted.predictions
        batches = fitted.model.all_rows.samples
        return acquisition.up_to_knee(fitted.predictions, batches, knee.share, knee.least)

    def _changes(self, fitted: _Fitted) -> Integers:
        """Return how many changes of the baseline every row has; 0 where it is not in the space."""
        baseline = self._knowledge.baseline and self._configs.point(self._knowledge.baseline)
        if not baseline:
            return np.zeros(len(fitted.points), np.int64)
        found: Integers = (fitted.points != np.array(baseline)).sum(1)
        return found

    def _durations(self, fitted: _Fitted) -> tuple[Floats, float]:
        """Return the expected seconds of a probe of every row without compiling, and the most that one may take."""
        grid = fitted.model.grid
        if self._knowledge.probe_duration is None:
            return np.ones(len(grid)), np.inf
        duration = self._knowledge.probe_duration()
        return duration.seconds(fitted.seconds, grid.accumulation), duration.most_seconds

    def _compiling(self, fitted: _Fitted) -> Floats:
        """Return the seconds that the next probe of every row compiles."""
        grid = fitted.model.grid
        found = np.zeros(len(grid))
        if self._knowledge.compiling_seconds is not None:
            for row in np.flatnonzero(grid.compiles):
                found[row] = self._knowledge.compiling_seconds(self._configs.at(fitted.points[row]))
        return found

    def _most_gain(self, gain: Floats, best: Floats, fitted: _Fitted) -> float | None:
        """Return the largest gain that a probe could have now, as a share of the best so far."""
        top = next(self._open(fitted, np.argsort(-gain, kind="stable")), None)
        incumbent = float(best.mean())
        return float(gain[top]) / incumbent if top is not None and incumbent > 0 else None

    @staticmethod
    def _first_within(rows: Iterable[int], seconds: Floats, most: float, default: int) -> int:
        """Return the first of the rows whose probe takes at most `most` seconds; if there is none, the shortest."""
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

        0.04 is 4 %; infinite if nothing was measured, or the study maximises what the model does not predict. If the
        space is too large to be listed, only the candidates are compared.
        """
        fitted = self._fitted(self._known(study))
        if not fitted.is_score:
            return float("inf")
        open_rows = np.zeros(len(fitted.model.grid), bool)
        open_rows[list(self._open(fitted, np.arange(len(fitted.points))))] = True
        return acquisition.faster_elsewhere(fitted.predictions, fitted.known.measured, open_rows, fitted.chance)

    def expected(self, study: optuna.Study, values: Sequence[Mapping[str, Value]]) -> list[Prediction]:
        """Return predictions for configurations, given as values of every knob, which need not be points of the space.

        Empty if nothing was measured, or if the value per sample was given, which is known for the space only.
        """
        known = self._known(study)
        if self._knowledge.value_per_sample is not None or not len(known.measured):
            return []
        fitted = self._fitted(known, values)
        best = acquisition.incumbents(fitted.predictions, known.measured)
        return [fitted.prediction(best, row) for row in range(len(fitted.points), len(fitted.model.grid))]

    def _fitted(self, known: Trials, further: Sequence[Mapping[str, Value]] | None = None) -> _Fitted:
        """Fit the model; return the predictions of the candidates, and of `further` configurations in the last rows."""
        chance = np.random.default_rng([self._seed, known.finished])
        points = known_candidates(self._configs, [self._configs.point(config) or () for config in known.row])
        peaks = self._predicted_peaks(points)
        learned, order = len(known.row), np.array([row for row, _ in peaks], np.int64)
        points = distinct(np.concatenate([points[:learned], points[order], points]))
        added = np.cumsum(order >= learned)  # those of a shape run that were not probed follow what was
        rows = np.where(order < learned, order, learned + added - 1)
        observed = [(known.row[config], seen) for config, seen in known.observations]
        predicted = [(int(row), peak) for row, (_, peak) in zip(rows, peaks, strict=True)]
        learned += int(added[-1]) if len(added) else 0
        domains = widened(self._configs, self._encoding.domains, further or ())  # the fit has all their unknowns
        with _ONE_AT_A_TIME, threadpool_limits(1, user_api="blas"):
            model = self._model(points[: max(learned, 1)], domains)
            data = gather(model, observed, predicted)
            found = fit(model, data, chance)
            if further is None:
                climbs = climbed(self._configs, points[0].tolist(), lambda some: self._speeds(some, found))
                points = distinct(np.concatenate([points[:learned], climbs, points]))
            else:
                points = points[: max(learned, 1)]
            model = self._model(points, domains, further or ())
            predictions = acquisition.predict(model, posterior_of(model, data, found), chance)
        if (value := self._knowledge.value_per_sample) is None:
            return _Fitted(known, model, points, predictions, np.ones(len(model.grid)), known.is_throughput, chance)
        values = np.array([value(self._configs.at(point)) for point in points.tolist()])
        return _Fitted(
            known, model, points, replace(predictions, rates=predictions.rates * values), values, True, chance
        )

    def _model(
        self, points: Points, domains: Mapping[str, Sequence[Value]] | None = None,
        further: Sequence[Mapping[str, Value]] = (),
    ) -> PerformanceModel:  # fmt: skip
        """Return the model on these configurations of the space, and on further ones given by their values.

        Models of equal `domains` have equal unknowns; None: the domains of the space.
        """
        on_cores = self._hardware.computes_on_cores
        grid = Grid.at(self._configs, points, domains or self._encoding.domains, further, on_cores=on_cores)
        return PerformanceModel(grid, self._hardware)

    def _speeds(self, points: Points, found: Fit) -> Floats:
        """Return the rates of these configurations under some guesses, (guesses, configurations)."""
        return acquisition.speeds(self._model(points), found.particles[:CLIMBER_COUNT])

    def _predicted_peaks(self, points: Points) -> list[tuple[int, PredictedPeak]]:
        """Return the memory that a shape run predicts for the first of these configurations that differ in memory."""
        if (shape_run := self._knowledge.shape_run) is None:
            return []
        _, rows = np.unique(self._model(points).memory_groups, return_index=True)  # one for every group
        rows = np.sort(rows)[:MOST_PREDICTED_PEAKS]
        predicted = ((int(row), shape_run(self._configs.at(points[row]))) for row in rows)
        return [(row, peak) for row, peak in predicted if peak is not None]

    def _known(self, study: optuna.Study, own: int | None = None) -> Trials:
        """Return the study's trials without the one numbered `own`, whose parameters are about to be proposed."""
        observations, values, running, finished = [], [], [], 0
        for trial in study.get_trials(deepcopy=False):
            is_complete = trial.params.keys() == self._encoding.distributions.keys()
            config = self._encoding.config(trial.params) if is_complete else None
            inside = config if config in self._configs else None
            if trial.state.is_finished():
                finished += 1
            elif inside is not None and trial.number != own:
                running.append(inside)
            if inside is not None and trial.state is not TrialState.FAIL and ATTRIBUTE in trial.user_attrs:
                observations.append((inside, recalled(trial.user_attrs)))
                values.append(trial.value if trial.state is TrialState.COMPLETE else None)
        kept = most_telling(values)
        return Trials([observations[at] for at in kept], [values[at] for at in kept], running, finished)
