"""The performance model: seconds and memory of a configuration as functions of the unknowns, for many guesses at once.

micro-batch  = (fixed^p + (sample * batch)^p)^(1/p)                p from 1 (they add up) to many (the larger counts)
computing    = accumulation * micro-batch + optimizer
loading      = accumulation * batch * load / min(workers^scaling, cap)
cores        = (cores busy computing * computing + share of loading) / cores
               where workers and computing want more cores than there are, computing takes longer: by a share of itself;
               on a CPU, where the threads wait for the one whose core a worker uses, by a multiple of loading
step         = the largest of the three, rounded off where they are equal; without workers computing + loading
memory       = (static^q + (sample * batch)^q)^(1/q) + workers * worker               convex in the batch
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.core.stats import Floats
from autotune.sampler import parameters as unknown
from autotune.sampler.grid import Grid, Hardware, Integers
from autotune.sampler.parameters import Parameters

WORKER_DOUBLINGS = 3
ALMOST_NO_WORKERS = 1e-9  # stands for 0 workers, so that a logarithm exists
# Exponent of the rounding: 9 % where two are equal; 3 to 11 % measured (docs/notes/throughput.md 3).
ROUNDING = 2**WORKER_DOUBLINGS


@dataclass(frozen=True)
class Places:
    """Rows of a grid with the columns that the model reads. Rows of one group share the group's entry.

    Compute groups: batch and the knobs that act on computing. Loader groups: workers and the knobs that act on loading.
    Memory groups: batch and the knobs that act on memory. Design matrices have for each entry the unknowns that act on
    it.
    """

    steps: Floats  # per row: micro-batches per optimizer step
    samples: Floats  # per row: samples per optimizer step
    alone: Floats  # per row: 1 where the training process loads itself
    busy: Floats  # per row: cores that computing keeps busy
    oversubscribed: Floats  # per row: 1 where workers and computing want more cores than there are
    oversubscription: Floats  # per row: design matrix
    compute_group: Integers  # per row: index into the following
    compute_batch: Floats  # per compute group: log of the batch
    fixed_time: Floats  # design matrix
    sample_time: Floats
    loader_group: Integers
    loader_workers: Floats
    loading: Floats
    memory_group: Integers
    memory_batch: Floats
    memory_workers: Floats
    fixed_memory: Floats
    sample_memory: Floats


class PerformanceModel:
    """The performance model on one grid: log seconds and log memory of its rows, for many guesses of the unknowns."""

    def __init__(self, grid: Grid, hardware: Hardware) -> None:
        self.grid, self.hardware = grid, hardware
        self.parameters = Parameters(grid, hardware)
        self.on_memory, self.on_loading = grid.acting("fixed_memory", "sample_memory"), grid.acting("loading_time")
        in_memory = [grid.worker_knob] if hardware.computes_on_cores else []  # workers live in the memory that binds
        self.on_computing = (*grid.acting("fixed_time", "sample_time"), *grid.thread_knobs)
        self.compute_groups = grid.group(("batch_size", *self.on_computing))
        self.loader_groups = grid.group((grid.worker_knob, *self.on_loading))
        self.memory_groups = grid.group(("batch_size", *self.on_memory, *in_memory))
        self._busy = self._busy_cores()
        self._oversubscribed = self._find_oversubscribed()
        self.all_rows = self.at(np.arange(len(grid)))

    def at(self, rows: Integers) -> Places:
        """Return the columns of these rows that the model reads."""
        grid = self.grid
        compute_group, compute_row = _shared(self.compute_groups[rows], rows)
        loader_group, loader_row = _shared(self.loader_groups[rows], rows)
        memory_group, memory_row = _shared(self.memory_groups[rows], rows)
        design = self.parameters.design
        return Places(
            steps=grid.accumulation[rows],
            samples=grid.accumulation[rows] * grid.batch[rows],
            alone=(grid.workers[rows] == 0).astype(float),
            busy=self._busy[rows],
            oversubscribed=self._oversubscribed[rows],
            oversubscription=design("oversubscription", rows),
            compute_group=compute_group,
            compute_batch=np.log(grid.batch[compute_row]),
            fixed_time=design("fixed_time", compute_row),
            sample_time=design("sample_time", compute_row),
            loader_group=loader_group,
            loader_workers=np.log(np.maximum(grid.workers[loader_row], 1.0)),
            loading=design("loading_time", loader_row),
            memory_group=memory_group,
            memory_batch=np.log(grid.batch[memory_row]),
            memory_workers=grid.workers[memory_row] if self.hardware.computes_on_cores else np.zeros(len(memory_row)),
            fixed_memory=design("fixed_memory", memory_row),
            sample_memory=design("sample_memory", memory_row),
        )

    def computing(self, guesses: Floats, places: Places) -> Floats:
        """Return the log seconds of one micro-batch without loading, (guesses, compute groups)."""
        fixed = guesses[:, [unknown.FIXED]] + guesses @ places.fixed_time.T
        sample = guesses[:, [unknown.FIXED]] - guesses[:, [unknown.SATURATION]] + guesses @ places.sample_time.T
        return _bent(fixed, sample + places.compute_batch, guesses[:, [unknown.SHARPNESS]])

    def fixed_share(self, guess: Floats, log_batch: float) -> float:
        """Return the elasticity of a micro-batch's seconds to its fixed part, 0 to 1; every knob has its default."""
        fixed, sample = guess[0, unknown.FIXED], guess[0, unknown.FIXED] - guess[0, unknown.SATURATION] + log_batch
        power = 1.0 + np.exp(guess[0, unknown.SHARPNESS])
        return float(1 / (1 + np.exp(power * (sample - fixed))))

    def loading(self, guesses: Floats, places: Places) -> Floats:
        """Return the log seconds per sample of loading alone, (guesses, loader groups)."""
        rate = np.exp(guesses[:, [unknown.SCALING]]) * places.loader_workers
        cap = np.maximum(guesses[:, [unknown.CAP]], 0.0)  # LOADING is the rate of one worker, which is never capped
        effective_workers = -np.logaddexp(-ROUNDING * rate, -ROUNDING * cap) / ROUNDING
        seconds: Floats = guesses[:, [unknown.LOADING]] + guesses @ places.loading.T - effective_workers
        return seconds

    def optimizer(self, guesses: Floats) -> Floats:
        """Return the log seconds of the optimizer's update in one step, (guesses, 1)."""
        return guesses[:, [unknown.FIXED]] + guesses[:, [unknown.OPTIMIZER]]

    def memory(self, guesses: Floats, places: Places) -> Floats:
        """Return the log of the peak as a share of the limit, (guesses, memory groups)."""
        static = guesses[:, [unknown.STATIC]] + guesses @ places.fixed_memory.T
        sample = guesses[:, [unknown.SAMPLE]] + guesses @ places.sample_memory.T + places.memory_batch
        trained = _bent(static, sample, guesses[:, [unknown.BEND]])
        if places.memory_workers.any():
            workers = guesses[:, [unknown.WORKER]] + np.log(np.maximum(places.memory_workers, ALMOST_NO_WORKERS))
            trained = np.logaddexp(trained, workers)
        return trained

    def _busy_cores(self) -> Floats:
        """Return the cores that computing uses per row: one per thread on a CPU target, else one to launch kernels."""
        if not self.hardware.computes_on_cores:
            return np.ones(len(self.grid))
        own = self.hardware.own_threads
        found: Floats = np.minimum(self.grid.threads(own), self.hardware.cores or own)
        return found

    def _find_oversubscribed(self) -> Floats:
        """Return per row 1 where computing waits for cores, else 0; a single thread on a CPU never waits."""
        if self.hardware.cores is None:
            return np.zeros(len(self.grid))
        workers, waiting = self.grid.workers, (self._busy > 1) | (not self.hardware.computes_on_cores)
        return ((workers > 0) & (workers + self._busy > self.hardware.cores) & waiting).astype(float)

    def clocks(self, guesses: Floats, places: Places, computing: Floats, loading: Floats) -> tuple[Floats, Floats]:
        """Return the seconds per optimizer step of computing alone and of loading alone, (guesses, rows)."""
        compute = np.exp(computing)[:, places.compute_group] * places.steps + np.exp(self.optimizer(guesses))
        return compute, np.exp(loading)[:, places.loader_group] * places.samples

    def together(self, guesses: Floats, places: Places, compute: Floats, load: Floats) -> Floats:
        """Return the seconds per optimizer step of computing and loading at once, (guesses, rows)."""
        total = compute + self._stall(guesses, places, compute, load)
        if self.hardware.cores:
            work = np.exp(guesses[:, [unknown.LOADING]] + guesses[:, [unknown.SHARE]]) * places.samples
            on_cores = _power((places.busy * total + work) / self.hardware.cores)
            total = _power(total) + on_cores
        else:
            total = _power(total)
        total += _power(load)
        for _ in range(WORKER_DOUBLINGS):
            np.sqrt(total, out=total)
        seconds: Floats = np.where(places.alone > 0, compute + load, total)
        return seconds

    def _stall(self, guesses: Floats, places: Places, compute: Floats, load: Floats) -> Floats:
        """Return the seconds for which computing waits for cores, (guesses, rows)."""
        oversubscription = guesses[:, [unknown.OVERSUBSCRIPTION]]
        if not self.hardware.computes_on_cores:
            return np.asarray(compute * (np.exp(oversubscription) * places.oversubscribed), np.float64)
        oversubscription = oversubscription + guesses[:, [unknown.SHARE]]  # a waiting worker uses no core
        if places.oversubscription.any():
            oversubscription = oversubscription + guesses @ places.oversubscription.T
        return np.asarray(load * (np.exp(oversubscription) * places.oversubscribed), np.float64)


def _bent(start: Floats, slope: Floats, sharpness: Floats) -> Floats:
    """Return the logarithm of a smooth turn from a constant to a straight line, given the logarithms of both."""
    power = 1.0 + np.exp(sharpness)
    found: Floats = np.logaddexp(power * start, power * slope) / power
    return found


def _power(seconds: Floats) -> Floats:
    squared = seconds * seconds
    squared *= squared
    squared *= squared
    return squared


def _shared(numbers: Integers, rows: Integers) -> tuple[Integers, Integers]:
    """Return for each row the index of its number among the distinct ones, and one row for each of these."""
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return inverse.astype(np.int64), rows[first]
