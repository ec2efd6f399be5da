"""The discrepancy of the performance model (Kennedy & O'Hagan, 2001): Gaussian fields over the groups of its clocks.

The model's error for a value of a knob is assumed to be no larger than the effect of that value, in the mean over the
belief about it: an interaction is small where the effect is small (effect heredity; Hamada and Wu, "Analysis of
Designed Experiments with Complex Aliasing", 1992). Settings without effect share one curve, along which no probe would
find anything.

A coupled reading (of computing and loading at once) depends on the field of its compute group as far as computing
decides the step, and on that of its loader group as far as loading does. One reading of either clock alone informs
about every configuration that shares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.core.stats import Floats
from autotune.sampler import fitted_data as known
from autotune.sampler.fitted_data import ProbeData, alike, along
from autotune.sampler.grid import Integers
from autotune.sampler.performance_model import PerformanceModel

COVARIANCE_JITTER = 1e-9


@dataclass(frozen=True)
class Discrepancy:
    """The joint normal distribution of the fields and the residuals of all readings."""

    compute_groups: Floats  # covariance with every reading, (compute groups, readings)
    loader_groups: Floats
    memory_groups: Floats  # covariance with every peak
    time_whitener: Floats  # inverse Cholesky factor of the readings' covariance: makes their residuals independent
    memory_whitener: Floats

    def whitened_times(self, residuals: Floats) -> Floats:
        """Return residuals that are independent standard normal under the model, (guesses, readings)."""
        return _whitened(self.time_whitener, residuals)

    def whitened_memories(self, residuals: Floats) -> Floats:
        """Return residuals of log peaks that are independent standard normal under the model, (guesses, peaks)."""
        return _whitened(self.memory_whitener, residuals)

    def compute_field(self, residuals: Floats) -> tuple[Floats, Floats]:
        """Return the error of log seconds of computing: mean (guesses, groups), standard deviation (groups)."""
        return _regressed(self.compute_groups, self.time_whitener, residuals, known.COMPUTE_GROUP**2 + known.CURVE**2)

    def loader_field(self, residuals: Floats) -> tuple[Floats, Floats]:
        """Return the error of log seconds of loading: mean (guesses, groups), standard deviation (groups)."""
        return _regressed(self.loader_groups, self.time_whitener, residuals, known.LOADER_GROUP**2)

    def memory_field(self, residuals: Floats) -> tuple[Floats, Floats]:
        """Return the error of log peaks: mean (guesses, groups), standard deviation (groups)."""
        variance = known.MEMORY_GROUP**2 + known.MEMORY_CURVE**2
        return _regressed(self.memory_groups, self.memory_whitener, residuals, variance)


def discrepancy(model: PerformanceModel, data: ProbeData, guess: Floats, draws: Floats) -> Discrepancy:
    """Return the fields, linearised at `guess`: it decides how much computing and loading add to a coupled reading.

    `draws` are guesses of all unknowns, drawn from the present belief: they show the effect of each value of a knob.
    """
    compute_part, load_part = _parts(model, data, guess)
    rows, peaks = data.rows[data.probe], data.rows[data.with_peak]
    everywhere, batches = model.all_rows, np.log(model.grid.batch)
    kin = ErrorCorrelation(model, guess, draws)

    def computing(ours: Integers) -> Floats:
        shared = kin.of_computing(ours, data.rows)[:, data.probe]
        same = known.COMPUTE_GROUP**2 * alike(model.grid.batch[ours], model.grid.batch[rows])
        found: Floats = shared * (same + known.CURVE**2 * along(batches[ours], batches[rows]))
        return found

    def loading(ours: Integers) -> Floats:
        same = alike(model.grid.workers[ours], model.grid.workers[rows])
        found: Floats = known.LOADER_GROUP**2 * same * kin.of_loading(ours, data.rows)[:, data.probe]
        return found

    def memory(ours: Integers) -> Floats:
        shared = kin.of_memory(ours, data.rows)[:, data.with_peak]
        same = known.MEMORY_GROUP**2 * alike(batches[ours], batches[peaks])
        found: Floats = shared * (same + known.MEMORY_CURVE**2 * along(batches[ours], batches[peaks]))
        return found

    coupled = (data.kind == known.COUPLED).astype(float)
    covariance = np.outer(compute_part, compute_part) * computing(rows) + np.outer(load_part, load_part) * loading(rows)
    covariance += known.COUPLING**2 * np.outer(coupled, coupled) * alike(rows, rows)
    clock = known.CLOCK_ON_CORES if model.hardware.computes_on_cores else known.CLOCK
    covariance += known.PROBE**2 * alike(data.probe, data.probe) + clock**2 * np.eye(len(rows))
    return Discrepancy(
        compute_groups=computing(_first(everywhere.compute_group)) * compute_part,
        loader_groups=loading(_first(everywhere.loader_group)) * load_part,
        memory_groups=memory(_first(everywhere.memory_group)),
        time_whitener=_whitener(covariance),
        memory_whitener=_whitener(memory(peaks) + np.diag(data.peak_spread**2) + data.peak_shared @ data.peak_shared.T),
    )


class ErrorCorrelation:
    """The share of an error that two rows have in common, 0 to 1, by the effects of the knobs in which they differ."""

    def __init__(self, model: PerformanceModel, guess: Floats, draws: Floats) -> None:
        """Times are compared at the batch of the first row, by `guess`."""
        self._grid, self._parameters, self._draws = model.grid, model.parameters, draws
        share = model.fixed_share(guess, float(np.log(model.grid.batch[0])))
        self._times = {"fixed_time": share, "sample_time": 1 - share}
        self._on_computing, self._on_memory, self._on_loading = model.on_computing, model.on_memory, model.on_loading

    def of_computing(self, ours: Integers, theirs: Integers) -> Floats:
        """Return the share of the error of log seconds of computing, 0 to 1, (ours, theirs)."""
        variance = known.COMPUTE_GROUP**2 + known.CURVE**2
        return self._of(self._on_computing, self._times, variance, ours, theirs)

    def of_loading(self, ours: Integers, theirs: Integers) -> Floats:
        """Return the share of the error of log seconds of loading with equally many workers, 0 to 1, (ours, theirs)."""
        return self._of(self._on_loading, {"loading_time": 1.0}, known.LOADER_GROUP**2, ours, theirs)

    def of_memory(self, ours: Integers, theirs: Integers) -> Floats:
        """Return the share of the error of the log peak, 0 to 1, (ours, theirs)."""
        variance = known.MEMORY_GROUP**2 + known.MEMORY_CURVE**2
        return self._of(self._on_memory, {"fixed_memory": 0.5, "sample_memory": 0.5}, variance, ours, theirs)

    def _of(
        self, names: Sequence[str], weights: Mapping[str, float], variance: float, ours: Integers, theirs: Integers
    ) -> Floats:
        """Return exp(-d / (2 variance)), where d is the mean squared effect: errors then differ by at most this."""
        found = np.zeros((len(ours), len(theirs)))
        for name in dict.fromkeys(names):
            codes = self._grid.codes[name]
            found += self._effects(name, weights)[codes[ours][:, None], codes[theirs][None, :]]
        shared: Floats = np.exp(-found / (2 * variance))
        return shared

    def _effects(self, name: str, weights: Mapping[str, float]) -> Floats:
        """Return the mean squared difference that any two values of a knob make to a logarithm."""
        if name in self._grid.thread_knobs:  # the model itself knows the effect of threads
            return np.where(np.eye(len(self._grid.domains[name])) > 0, 0.0, np.inf)
        table = sum(weight * self._parameters.table(clock, name) for clock, weight in weights.items())
        effects = self._draws @ np.asarray(table).T
        found: Floats = ((effects[:, :, None] - effects[:, None, :]) ** 2).mean(0)
        return found


def _parts(model: PerformanceModel, data: ProbeData, guess: Floats) -> tuple[Floats, Floats]:
    """Return by how many per cent each reading changes if computing, or loading, changes by one per cent."""
    places, step = data.places, 1e-3
    computing, loading = model.computing(guess, places), model.loading(guess, places)

    def coupled(longer_computing: float, longer_loading: float) -> Floats:
        clocks = model.clocks(guess, places, computing + longer_computing, loading + longer_loading)
        seconds: Floats = np.log(model.together(guess, places, *clocks))[0]
        return seconds

    base = coupled(0, 0)
    compute_part = np.ones(len(data.kind), np.float64)
    load_part = np.ones(len(data.kind), np.float64)
    where = data.kind == known.COUPLED
    compute_part[where] = ((coupled(step, 0) - base) / step)[data.probe[where]]
    load_part[where] = ((coupled(0, step) - base) / step)[data.probe[where]]
    compute_part[data.kind == known.LOADER] = 0.0
    load_part[data.kind == known.COMPUTE] = 0.0
    return compute_part, load_part


def _whitener(covariance: Floats) -> Floats:
    root = np.linalg.cholesky(covariance + COVARIANCE_JITTER * np.eye(len(covariance)))
    found: Floats = np.asarray(np.linalg.inv(root), np.float64)  # inverted once: a fit and its particles need it often
    return found


def _whitened(whitener: Floats, residuals: Floats) -> Floats:
    found: Floats = residuals @ whitener.T
    return found


def _regressed(covariance: Floats, whitener: Floats, residuals: Floats, variance: float) -> tuple[Floats, Floats]:
    if not len(whitener):
        return np.zeros((len(residuals), len(covariance))), np.full(len(covariance), np.sqrt(variance))
    weights = _whitened(whitener, covariance).T  # (readings, entries)
    mean = _whitened(whitener, residuals) @ weights
    return mean, np.sqrt(np.maximum(variance - (weights**2).sum(0), COVARIANCE_JITTER))


def _first(numbers: Integers) -> Integers:
    """Return one row for every number, in the order of the numbers."""
    return np.unique(numbers, return_index=True)[1]
