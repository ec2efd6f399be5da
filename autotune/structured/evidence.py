"""What probes have shown, as numbers to fit, and how far measurements of like configurations err alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.forecast import Foretold
from autotune.structured.grid import Floats, Integers
from autotune.structured.law import Law, Places
from autotune.structured.observation import Observation

COUPLED, COMPUTE, LOADER = range(3)
Foretell = Callable[[int], Foretold | None]  # of a row of the grid what a dry run says; None where it cannot say
# Standard deviations of logarithms. The law itself erred by 2.5 to 7 % on measured curves (docs/notes/throughput.md 1),
# most at the ends of an arm and at single batches: cache spill, powers of two, tiles and waves (section 2).
CELL = 0.05  # the law at one batch of one arm
ARM = 0.08  # the law along one arm, over OCTAVES
OCTAVES = 2.0
STREAM = 0.08  # the law of the loader at one number of workers
COUPLING = 0.02  # of both at once, beyond what each does alone
ROOM = 0.03  # the law of memory at one batch of one arm
MEMORY_ARM = 0.03  # and along one arm
# Of each clock of a probe on cores that others use: a step and what computing and loading take alone disagreed by 6.5 %
# in 58 probes without workers on two cores (surfaces), by 5 % in the study digits_cnn-xeon.
CLOCK_ON_CORES = 0.045
# Of measuring: 3 % is what a probe is measured to (`ProbeBudget.target_precision`), half of it common to its clocks.
PROBE, CLOCK, PEAK = 0.02, 0.025, 0.01
# Of a dry run, beside what it errs about all rows alike: within 5 % of the allocator's peak (`benchmarks/memory.py`).
FORETOLD = 0.06
MOST_FORETOLD = 128  # rooms that a dry run is asked for; beyond that they are thinned out evenly


@dataclass(frozen=True)
class Evidence:
    """Observations at rows of the grid."""

    rows: Integers  # of the grid, one per probe that taught anything
    places: Places  # of these rows
    probe: Integers  # of each clock reading: its probe
    kind: Integers  # COUPLED, COMPUTE or LOADER
    seconds: Floats  # log seconds per sample
    weighed: Integers  # probes with a peak
    peaks: Floats  # log of the peak in units of what may be used
    peak_spread: Floats  # standard deviation of each
    peak_together: Floats  # (peaks, shared unknowns): by how much of its logarithm each errs alike with the others
    fitted: Integers  # probes that fitted, of unknown peak
    overflowed: Integers  # probes that did not fit, of unknown peak

    def readings(self, law: Law, guesses: Floats) -> Floats:
        """What the law says the clocks should have read, (guesses, readings)."""
        places = self.places
        compute, load = law.clocks(guesses, places, law.computing(guesses, places), law.loading(guesses, places))
        together = law.together(guesses, places, compute, load)
        said = np.log(np.stack([together, compute, load]) / places.samples)
        found: Floats = said[self.kind, :, self.probe].T
        return found

    def memories(self, law: Law, guesses: Floats) -> Floats:
        """What the law says of the memory of every probe, (guesses, probes)."""
        return law.memory(guesses, self.places)[:, self.places.room]


def gather(law: Law, found: Sequence[tuple[int, Observation]], foretell: Foretell | None = None) -> Evidence:
    """Evidence from (row of the grid, observation) pairs, and from a dry run if there was one."""
    taught = [(row, seen) for row, seen in found if _rates(seen) or seen.within_memory is not None]
    clocks = [
        (number, kind, -float(np.log(rate)))
        for number, (_, seen) in enumerate(taught)
        for kind, rate in _rates(seen).items()
    ]
    shares = {number: seen.memory_share for number, (_, seen) in enumerate(taught) if seen.memory_share is not None}
    fits = {number: seen.within_memory for number, (_, seen) in enumerate(taught) if number not in shares}
    dry = _dry_runs(law, foretell)
    rows = _whole([row for row, _ in taught] + [row for row, _ in dry])
    peaks = [*shares.values(), *(told.share for _, told in dry)]
    together = np.array([told.together for _, told in dry], np.float64).reshape(len(dry), -1 if dry else 0)
    return Evidence(
        rows=rows,
        places=law.at(rows),
        probe=_whole([number for number, _, _ in clocks]),
        kind=_whole([kind for _, kind, _ in clocks]),
        seconds=np.array([seconds for _, _, seconds in clocks], np.float64),
        weighed=_whole([*shares, *range(len(taught), len(rows))]),
        peaks=np.log(np.array(peaks, np.float64)),
        peak_spread=np.repeat([PEAK, FORETOLD], [len(shares), len(dry)]),
        peak_together=np.vstack([np.zeros((len(shares), together.shape[1])), together]),
        fitted=_whole([number for number, fit in fits.items() if fit]),
        overflowed=_whole([number for number, fit in fits.items() if fit is False]),
    )


def _dry_runs(law: Law, foretell: Foretell | None) -> list[tuple[int, Foretold]]:
    if foretell is None:
        return []
    _, rooms = np.unique(law.rooms, return_index=True)
    asked = rooms[:: 1 + len(rooms) // MOST_FORETOLD]
    said = ((int(row), foretell(int(row))) for row in asked)
    return [(row, told) for row, told in said if told is not None]


def _rates(seen: Observation) -> dict[int, float]:
    """The rates that can be fitted, by kind."""
    rates = (seen.samples_per_second, seen.compute_samples_per_second, seen.loader_samples_per_second)
    return {kind: rate for kind, rate in enumerate(rates) if rate is not None and 0 < rate < np.inf}


def _whole(numbers: Sequence[int]) -> Integers:
    return np.array(numbers, np.int64)


def alike(numbers: Integers, others: Integers) -> Floats:
    """1 where the same, else 0, (numbers, others)."""
    same: Floats = (numbers[:, None] == others[None, :]).astype(np.float64)
    return same


def along(arms: Integers, batches: Floats, other_arms: Integers, other_batches: Floats) -> Floats:
    """How alike two batches of one arm are, 0 to 1; batches as logarithms."""
    octaves = (batches[:, None] - other_batches[None, :]) / np.log(2)
    near: Floats = np.exp(-0.5 * (octaves / OCTAVES) ** 2)
    return near * alike(arms, other_arms)
