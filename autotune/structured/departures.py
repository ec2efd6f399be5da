"""Where measurements depart from the law: Gaussian fields over cells, streams and rooms, learned from residuals.

A coupled reading feels the field of its cell as far as computing decides the step, and that of its stream as far as
loading does; so that one reading of either clock alone teaches about every configuration that shares it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.structured import evidence as known
from autotune.structured.evidence import Evidence, alike, along
from autotune.structured.grid import Floats, Integers
from autotune.structured.law import Law

JITTER = 1e-9


@dataclass(frozen=True)
class Departures:
    """The joint distribution of all readings around the law, and what they tell about the fields."""

    cells: Floats  # covariance of every field cell with every reading
    streams: Floats
    rooms: Floats  # with every peak
    time_root: Floats  # Cholesky factor of the covariance of the readings
    memory_root: Floats
    cell_variance: float
    stream_variance: float
    room_variance: float

    def whitened_times(self, residuals: Floats) -> Floats:
        """Independent standard normal under the law, (guesses, readings)."""
        return _solved(self.time_root, residuals)

    def whitened_memories(self, residuals: Floats) -> Floats:
        """The same for peaks."""
        return _solved(self.memory_root, residuals)

    def cell_field(self, residuals: Floats) -> tuple[Floats, Floats]:
        """Mean (guesses, cells) and standard deviation (cells) of the logarithm by which computing departs."""
        return _regressed(self.cells, self.time_root, residuals, self.cell_variance)

    def stream_field(self, residuals: Floats) -> tuple[Floats, Floats]:
        """The same for loading."""
        return _regressed(self.streams, self.time_root, residuals, self.stream_variance)

    def room_field(self, residuals: Floats) -> tuple[Floats, Floats]:
        """The same for memory."""
        return _regressed(self.rooms, self.memory_root, residuals, self.room_variance)


def departures(law: Law, evidence: Evidence, guess: Floats) -> Departures:
    """The fields, linearised at `guess`, which says what computing and loading contribute to a coupled reading."""
    compute_part, load_part = _parts(law, evidence, guess)
    rows = evidence.rows[evidence.probe]
    grid, everywhere = law.grid, law.everywhere
    batches = np.log(grid.batch)
    cell_row, stream_row, room_row = (_first(part) for part in (everywhere.cell, everywhere.stream, everywhere.room))

    def cells(ours: Integers) -> Floats:
        same = known.CELL**2 * alike(law.cells[ours], law.cells[rows])
        return same + known.ARM**2 * along(law.arms[ours], batches[ours], law.arms[rows], batches[rows])

    def streams(ours: Integers) -> Floats:
        return known.STREAM**2 * alike(law.streams[ours], law.streams[rows])

    coupled = (evidence.kind == known.COUPLED).astype(float)
    covariance = np.outer(compute_part, compute_part) * cells(rows) + np.outer(load_part, load_part) * streams(rows)
    covariance += known.COUPLING**2 * np.outer(coupled, coupled) * alike(rows, rows)
    covariance += known.PROBE**2 * alike(evidence.probe, evidence.probe) + known.CLOCK**2 * np.eye(len(rows))

    heavy = evidence.rows[evidence.weighed]

    def rooms(ours: Integers) -> Floats:
        same = known.ROOM**2 * alike(law.rooms[ours], law.rooms[heavy])
        near = along(law.memory_arms[ours], batches[ours], law.memory_arms[heavy], batches[heavy])
        found: Floats = same + known.MEMORY_ARM**2 * near
        return found

    return Departures(
        cells=cells(cell_row) * compute_part,
        streams=streams(stream_row) * load_part,
        rooms=rooms(room_row),
        time_root=_root(covariance),
        memory_root=_root(rooms(heavy) + np.diag(evidence.peak_spread**2)),
        cell_variance=known.CELL**2 + known.ARM**2,
        stream_variance=known.STREAM**2,
        room_variance=known.ROOM**2 + known.MEMORY_ARM**2,
    )


def _parts(law: Law, evidence: Evidence, guess: Floats) -> tuple[Floats, Floats]:
    """By how much of a per cent each reading moves where computing, or loading, moves by one per cent."""
    places, step = evidence.places, 1e-3
    computing, loading = law.computing(guess, places), law.loading(guess, places)

    def coupled(longer_computing: float, longer_loading: float) -> Floats:
        clocks = law.clocks(guess, places, computing + longer_computing, loading + longer_loading)
        seconds: Floats = np.log(law.together(guess, places, *clocks))[0]
        return seconds

    base = coupled(0, 0)
    compute_part = np.ones(len(evidence.kind), np.float64)
    load_part = np.ones(len(evidence.kind), np.float64)
    where = evidence.kind == known.COUPLED
    compute_part[where] = ((coupled(step, 0) - base) / step)[evidence.probe[where]]
    load_part[where] = ((coupled(0, step) - base) / step)[evidence.probe[where]]
    compute_part[evidence.kind == known.LOADER] = 0.0
    load_part[evidence.kind == known.COMPUTE] = 0.0
    return compute_part, load_part


def _root(covariance: Floats) -> Floats:
    root: Floats = np.asarray(np.linalg.cholesky(covariance + JITTER * np.eye(len(covariance))), np.float64)
    return root


def _solved(root: Floats, residuals: Floats) -> Floats:
    if not len(root):
        return residuals
    found: Floats = np.asarray(np.linalg.solve(root, residuals.T).T, np.float64)
    return found


def _regressed(covariance: Floats, root: Floats, residuals: Floats, variance: float) -> tuple[Floats, Floats]:
    if not len(root):
        return np.zeros((len(residuals), len(covariance))), np.full(len(covariance), np.sqrt(variance))
    weights = _solved(root, covariance).T  # (readings, entries)
    mean = _solved(root, residuals) @ weights
    return mean, np.sqrt(np.maximum(variance - (weights**2).sum(0), JITTER))


def _first(numbers: Integers) -> Integers:
    """One row for every number, in the order of the numbers."""
    return np.unique(numbers, return_index=True)[1]
