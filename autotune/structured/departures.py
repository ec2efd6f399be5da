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
BREAK = np.log(1.15)  # a residual beyond 15 % says that the law does not hold there (docs/notes/search.md 6)


@dataclass(frozen=True)
class Departures:
    """The joint distribution of all readings around the law, and what they tell about the fields."""

    cells: Floats  # covariance of every field cell with every reading
    streams: Floats
    rooms: Floats  # with every peak
    time_whitener: Floats  # makes the readings' residuals independent: inverse Cholesky factor of their covariance
    memory_whitener: Floats
    cell_variance: Floats  # (cells)
    stream_variance: float
    room_variance: float
    scale: Floats  # (arms) how many times further than expected the law is off there; 1 where it holds

    def whitened_times(self, residuals: Floats) -> Floats:
        """Independent standard normal under the law, (guesses, readings)."""
        return _whitened(self.time_whitener, residuals)

    def whitened_memories(self, residuals: Floats) -> Floats:
        """The same for peaks."""
        return _whitened(self.memory_whitener, residuals)

    def cell_field(self, residuals: Floats) -> tuple[Floats, Floats]:
        """Mean (guesses, cells) and standard deviation (cells) of the logarithm by which computing departs."""
        return _regressed(self.cells, self.time_whitener, residuals, self.cell_variance)

    def stream_field(self, residuals: Floats) -> tuple[Floats, Floats]:
        """The same for loading."""
        return _regressed(self.streams, self.time_whitener, residuals, self.stream_variance)

    def room_field(self, residuals: Floats) -> tuple[Floats, Floats]:
        """The same for memory."""
        return _regressed(self.rooms, self.memory_whitener, residuals, self.room_variance)


def departures(law: Law, evidence: Evidence, guess: Floats, scale: Floats | None = None) -> Departures:
    """The fields, linearised at `guess`, which says what computing and loading contribute to a coupled reading.

    `scale`: how many times as far as elsewhere the law may be off, per arm; see `broken`.
    """
    scale = np.ones(1 + law.arms.max()) if scale is None else scale
    compute_part, load_part = _parts(law, evidence, guess)
    rows = evidence.rows[evidence.probe]
    grid, everywhere = law.grid, law.everywhere
    batches = np.log(grid.batch)
    cell_row, stream_row, room_row = (_first(part) for part in (everywhere.cell, everywhere.stream, everywhere.room))

    def cells(ours: Integers) -> Floats:
        same = known.CELL**2 * alike(law.cells[ours], law.cells[rows])
        same += known.ARM**2 * along(law.arms[ours], batches[ours], law.arms[rows], batches[rows])
        return np.outer(scale[law.arms[ours]], scale[law.arms[rows]]) * same

    def streams(ours: Integers) -> Floats:
        return known.STREAM**2 * alike(law.streams[ours], law.streams[rows])

    coupled = (evidence.kind == known.COUPLED).astype(float)
    covariance = np.outer(compute_part, compute_part) * cells(rows) + np.outer(load_part, load_part) * streams(rows)
    covariance += known.COUPLING**2 * np.outer(coupled, coupled) * alike(rows, rows)
    clock = known.CLOCK_ON_CORES if law.hardware.computes_on_cores else known.CLOCK
    covariance += known.PROBE**2 * alike(evidence.probe, evidence.probe) + clock**2 * np.eye(len(rows))

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
        time_whitener=_whitener(covariance),
        memory_whitener=_whitener(
            rooms(heavy) + np.diag(evidence.peak_spread**2) + evidence.peak_together @ evidence.peak_together.T
        ),
        cell_variance=(known.CELL**2 + known.ARM**2) * scale[law.arms[cell_row]] ** 2,
        stream_variance=known.STREAM**2,
        room_variance=known.ROOM**2 + known.MEMORY_ARM**2,
        scale=scale,
    )


def broken(law: Law, evidence: Evidence, guess: Floats) -> Floats:
    """Where the law is broken at its best fit, per arm: how many times further off it is than expected; else 1.

    An arm is broken if one of its readings is off by more than `BREAK`, as far as computing decides that reading. The
    field is then as wide there as what was seen: neighbouring batches of the arm tell more than the law, and the
    acquisition climbs from the best of them to the next.
    """
    compute_part, _ = _parts(law, evidence, guess)
    off = np.abs(compute_part * (evidence.seconds - evidence.readings(law, guess)[0]))
    scale = np.ones(1 + law.arms.max())
    far = off > BREAK
    expected = np.hypot(known.CELL, known.ARM)
    np.maximum.at(scale, law.arms[evidence.rows[evidence.probe[far]]], off[far] / expected)
    return scale


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


def _whitener(covariance: Floats) -> Floats:
    root = np.linalg.cholesky(covariance + JITTER * np.eye(len(covariance)))
    found: Floats = np.asarray(np.linalg.inv(root), np.float64)  # once, for a fit and its particles need it often
    return found


def _whitened(whitener: Floats, residuals: Floats) -> Floats:
    found: Floats = residuals @ whitener.T
    return found


def _regressed(
    covariance: Floats, whitener: Floats, residuals: Floats, variance: float | Floats
) -> tuple[Floats, Floats]:
    if not len(whitener):
        return np.zeros((len(residuals), len(covariance))), np.sqrt(np.broadcast_to(variance, len(covariance)))
    weights = _whitened(whitener, covariance).T  # (readings, entries)
    mean = _whitened(whitener, residuals) @ weights
    return mean, np.sqrt(np.maximum(variance - (weights**2).sum(0), JITTER))


def _first(numbers: Integers) -> Integers:
    """One row for every number, in the order of the numbers."""
    return np.unique(numbers, return_index=True)[1]
