"""The law: seconds and memory of a configuration as functions of the unknowns, for many guesses at once.

micro-batch  = (fixed^p + (sample * batch)^p)^(1/p)                p from 1 (they add up) to many (the larger counts)
computing    = accumulation * micro-batch + optimizer
loading      = accumulation * batch * load / min(workers^scaling, cap)
cores        = (cores busy computing * computing + share of loading) / cores
               computing longer where workers and it want more cores than there are: by a share; on a CPU, where several
               threads wait for the one whose core a worker has, by a multiple of what loading takes on a core
step         = the largest of the three, rounded off where they are equal; without workers computing + loading
memory       = (static^q + (sample * batch)^q)^(1/q) + workers * worker               convex in the batch
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.structured import parameters as unknown
from autotune.structured.grid import Floats, Grid, Hardware, Integers
from autotune.structured.parameters import Parameters

DOUBLINGS = 3
NOBODY = 1e-9  # workers where there are none, so that a logarithm exists
ROUNDING = 2**DOUBLINGS  # exponent of the rounding: 9 % where two are equal, as was measured (3 to 11 %, theory note 5)


@dataclass(frozen=True)
class Places:
    """Rows of a grid, with everything of them that the law needs. Rows that share a clock share its entry.

    Cells: batch and all categories. Streams: workers and what moves the loader. Rooms: batch and what moves memory.
    """

    steps: Floats  # per row: micro-batches per optimizer step
    samples: Floats  # per row: samples per optimizer step
    alone: Floats  # per row: 1 where nobody but the training process loads
    busy: Floats  # per row: cores that computing keeps busy
    crowded: Floats  # per row: 1 where workers and computing want more cores than there are
    crowding: Floats  # per row: the unknowns that it feels
    cell: Integers  # per row: its cell, as an index into the following
    cell_batch: Floats
    fixed_time: Floats  # per cell: the unknowns that it feels
    sample_time: Floats
    stream: Integers
    stream_workers: Floats
    loading: Floats
    room: Integers
    room_batch: Floats
    room_workers: Floats
    fixed_memory: Floats
    sample_memory: Floats


class Law:
    """The law on one grid."""

    def __init__(self, grid: Grid, hardware: Hardware) -> None:
        self.grid, self.hardware = grid, hardware
        self.parameters = Parameters(grid, hardware)
        moved = grid.acting("fixed_memory", "sample_memory")
        loader = grid.acting("loading_time")
        workers = (grid.worker_knob,)
        self.cells = _numbered(grid.group(("batch_size", *grid.categories)))
        self.arms = _numbered(grid.group(grid.categories))
        self.streams = _numbered(grid.group((*workers, *loader)))
        self.rooms = _numbered(grid.group(("batch_size", *moved, *(workers if hardware.computes_on_cores else ()))))
        self.memory_arms = _numbered(grid.group(moved))
        self._busy = self._kept_busy()
        self._crowded = self._contested()
        self.everywhere = self.at(np.arange(len(grid)))

    def at(self, rows: Integers) -> Places:
        """The places of some rows."""
        grid = self.grid
        cell, cell_row = _shared(self.cells[rows], rows)
        stream, stream_row = _shared(self.streams[rows], rows)
        room, room_row = _shared(self.rooms[rows], rows)
        design = self.parameters.design
        return Places(
            steps=grid.accumulation[rows],
            samples=grid.accumulation[rows] * grid.batch[rows],
            alone=(grid.workers[rows] == 0).astype(float),
            busy=self._busy[rows],
            crowded=self._crowded[rows],
            crowding=design("crowding", rows),
            cell=cell,
            cell_batch=np.log(grid.batch[cell_row]),
            fixed_time=design("fixed_time", cell_row),
            sample_time=design("sample_time", cell_row),
            stream=stream,
            stream_workers=np.log(np.maximum(grid.workers[stream_row], 1.0)),
            loading=design("loading_time", stream_row),
            room=room,
            room_batch=np.log(grid.batch[room_row]),
            room_workers=grid.workers[room_row] if self.hardware.computes_on_cores else np.zeros(len(room_row)),
            fixed_memory=design("fixed_memory", room_row),
            sample_memory=design("sample_memory", room_row),
        )

    def computing(self, guesses: Floats, places: Places) -> Floats:
        """Log seconds of one micro-batch alone, (guesses, cells)."""
        fixed = guesses[:, [unknown.FIXED]] + guesses @ places.fixed_time.T
        sample = guesses[:, [unknown.FIXED]] - guesses[:, [unknown.SATURATION]] + guesses @ places.sample_time.T
        return _bent(fixed, sample + places.cell_batch, guesses[:, [unknown.SHARPNESS]])

    def loading(self, guesses: Floats, places: Places) -> Floats:
        """Log seconds per sample of loading alone, (guesses, streams)."""
        rate = np.exp(guesses[:, [unknown.SCALING]]) * places.stream_workers
        cap = np.maximum(guesses[:, [unknown.CAP]], 0.0)  # one worker is never capped: that is what LOADING says
        hands = -np.logaddexp(-ROUNDING * rate, -ROUNDING * cap) / ROUNDING
        seconds: Floats = guesses[:, [unknown.LOADING]] + guesses @ places.loading.T - hands
        return seconds

    def optimizer(self, guesses: Floats) -> Floats:
        """Log seconds of one optimizer step without gradients, (guesses, 1)."""
        return guesses[:, [unknown.FIXED]] + guesses[:, [unknown.OPTIMIZER]]

    def memory(self, guesses: Floats, places: Places) -> Floats:
        """Log of the peak in units of the limit, (guesses, rooms)."""
        static = guesses[:, [unknown.STATIC]] + guesses @ places.fixed_memory.T
        sample = guesses[:, [unknown.SAMPLE]] + guesses @ places.sample_memory.T + places.room_batch
        trained = _bent(static, sample, guesses[:, [unknown.BEND]])
        if places.room_workers.any():
            workers = guesses[:, [unknown.WORKER]] + np.log(np.maximum(places.room_workers, NOBODY))
            trained = np.logaddexp(trained, workers)
        return trained

    def _kept_busy(self) -> Floats:
        """Cores per row: one for every thread on a CPU target, else that of the process that launches."""
        if not self.hardware.computes_on_cores:
            return np.ones(len(self.grid))
        own = self.hardware.own_threads
        found: Floats = np.minimum(self.grid.threads(own), self.hardware.cores or own)
        return found

    def _contested(self) -> Floats:
        """Per row 1 where somebody waits for a core; a single thread on a CPU waits for no other."""
        if self.hardware.cores is None:
            return np.zeros(len(self.grid))
        workers, waiting = self.grid.workers, (self._busy > 1) | (not self.hardware.computes_on_cores)
        return ((workers > 0) & (workers + self._busy > self.hardware.cores) & waiting).astype(float)

    def clocks(self, guesses: Floats, places: Places, computing: Floats, loading: Floats) -> tuple[Floats, Floats]:
        """Seconds per optimizer step of computing alone and of loading alone, (guesses, rows)."""
        compute = np.exp(computing)[:, places.cell] * places.steps + np.exp(self.optimizer(guesses))
        return compute, np.exp(loading)[:, places.stream] * places.samples

    def together(self, guesses: Floats, places: Places, compute: Floats, load: Floats) -> Floats:
        """Seconds per optimizer step of both at once, (guesses, rows)."""
        total = compute + self._standstill(guesses, places, compute, load)
        if self.hardware.cores:
            work = np.exp(guesses[:, [unknown.LOADING]] + guesses[:, [unknown.SHARE]]) * places.samples
            on_cores = _power((places.busy * total + work) / self.hardware.cores)
            total = _power(total) + on_cores
        else:
            total = _power(total)
        total += _power(load)
        for _ in range(DOUBLINGS):
            np.sqrt(total, out=total)
        seconds: Floats = np.where(places.alone > 0, compute + load, total)
        return seconds

    def _standstill(self, guesses: Floats, places: Places, compute: Floats, load: Floats) -> Floats:
        """Seconds for which computing waits for cores, (guesses, rows)."""
        crowding = guesses[:, [unknown.CROWDING]]
        if not self.hardware.computes_on_cores:
            return np.asarray(compute * (np.exp(crowding) * places.crowded), np.float64)
        crowding = crowding + guesses[:, [unknown.SHARE]]  # a worker that waits leaves its core
        if places.crowding.any():
            crowding = crowding + guesses @ places.crowding.T
        return np.asarray(load * (np.exp(crowding) * places.crowded), np.float64)


def _bent(start: Floats, slope: Floats, sharpness: Floats) -> Floats:
    """Logarithm of the smooth turn from a constant to a straight line, of which both logarithms are given."""
    power = 1.0 + np.exp(sharpness)
    found: Floats = np.logaddexp(power * start, power * slope) / power
    return found


def _power(seconds: Floats) -> Floats:
    squared = seconds * seconds
    squared *= squared
    squared *= squared
    return squared


def _numbered(groups: Integers) -> Integers:
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def _shared(numbers: Integers, rows: Integers) -> tuple[Integers, Integers]:
    """For each row the place of its number among the different ones, and for each of these one row."""
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return inverse.astype(np.int64), rows[first]
