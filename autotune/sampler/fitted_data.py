"""The measurements of all probes as arrays to fit, and the standard deviations of measurement and model errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.core.stats import Floats
from autotune.memory.model import PredictedPeak
from autotune.sampler.grid import Integers
from autotune.sampler.observation import Observation
from autotune.sampler.performance_model import PerformanceModel, Places

Numbers = Floats | Integers
COUPLED, COMPUTE, LOADER = range(3)
# Standard deviations of logarithms. The model itself erred by 2.5 to 7 % on measured curves, most at their ends
# (docs/notes/throughput.md 1) and at single batches: cache spill, powers of two, tiles and waves (section 2).
COMPUTE_GROUP = 0.05  # computing, at one batch of one curve
CURVE = 0.08  # computing, along one curve; correlated over OCTAVES
OCTAVES = 2.0
LOADER_GROUP = 0.08  # loading, at one number of workers
COUPLING = 0.02  # computing and loading at once, beyond the errors of each alone
MEMORY_GROUP = 0.03  # memory, at one batch of one curve
MEMORY_CURVE = 0.03  # memory, along one curve
# Noise of each clock of a probe on a CPU: the seconds of a step and those of computing plus loading alone differed by
# 6.5 % in 58 probes without workers on two cores (surfaces), by 5 % in the study digits_cnn-xeon.
CLOCK_ON_CORES = 0.045
# Noise of a measurement: probes are measured to 3 % (`ProbeBudget.target_precision`), half of it common to the clocks.
PROBE, CLOCK, PEAK = 0.02, 0.025, 0.01
# Error of a shape run, beyond what all its rows share: within 5 % of the allocator's peak (`benchmarks/memory.py`).
SHAPE_RUN = 0.06


@dataclass(frozen=True)
class ProbeData:
    """The measurements at rows of the grid."""

    rows: Integers  # of the grid, one per probe with a measurement
    places: Places  # of these rows
    probe: Integers  # per clock reading: its probe
    kind: Integers  # COUPLED, COMPUTE or LOADER
    seconds: Floats  # log seconds per sample
    with_peak: Integers  # probes with a peak
    peaks: Floats  # log of the peak as a share of the usable memory
    peak_spread: Floats  # standard deviation of each
    peak_shared: Floats  # (peaks, shared errors): how much each shared error moves the log of each peak
    fitted: Integers  # probes without a peak that fitted into memory
    overflowed: Integers  # probes without a peak that ran out of memory

    def readings(self, model: PerformanceModel, guesses: Floats) -> Floats:
        """Return the log seconds per sample that the model predicts, (guesses, readings)."""
        places = self.places
        compute, load = model.clocks(guesses, places, model.computing(guesses, places), model.loading(guesses, places))
        together = model.together(guesses, places, compute, load)
        predicted = np.log(np.stack([together, compute, load]) / places.samples)
        found: Floats = predicted[self.kind, :, self.probe].T
        return found

    def memories(self, model: PerformanceModel, guesses: Floats) -> Floats:
        """Return the log of the peak that the model predicts for every probe, (guesses, probes)."""
        return model.memory(guesses, self.places)[:, self.places.memory_group]


def gather(
    model: PerformanceModel,
    found: Sequence[tuple[int, Observation]],
    predicted: Sequence[tuple[int, PredictedPeak]] = (),
) -> ProbeData:
    """Return the data of (row of the grid, observation) pairs, and of (row, peak) pairs that a shape run predicts."""
    measured = [(row, seen) for row, seen in found if _rates(seen) or seen.within_memory is not None]
    clocks = [
        (number, kind, -float(np.log(rate)))
        for number, (_, seen) in enumerate(measured)
        for kind, rate in _rates(seen).items()
    ]
    shares = {number: seen.memory_share for number, (_, seen) in enumerate(measured) if seen.memory_share is not None}
    fits = {number: seen.within_memory for number, (_, seen) in enumerate(measured) if number not in shares}
    rows = _whole([row for row, _ in measured] + [row for row, _ in predicted])
    peaks = [*shares.values(), *(peak.share for _, peak in predicted)]
    shared = np.array([peak.together for _, peak in predicted], np.float64).reshape(
        len(predicted), -1 if predicted else 0
    )
    return ProbeData(
        rows=rows,
        places=model.at(rows),
        probe=_whole([number for number, _, _ in clocks]),
        kind=_whole([kind for _, kind, _ in clocks]),
        seconds=np.array([seconds for _, _, seconds in clocks], np.float64),
        with_peak=_whole([*shares, *range(len(measured), len(rows))]),
        peaks=np.log(np.array(peaks, np.float64)),
        peak_spread=np.repeat([PEAK, SHAPE_RUN], [len(shares), len(predicted)]),
        peak_shared=np.vstack([np.zeros((len(shares), shared.shape[1])), shared]),
        fitted=_whole([number for number, fit in fits.items() if fit]),
        overflowed=_whole([number for number, fit in fits.items() if fit is False]),
    )


def _rates(seen: Observation) -> dict[int, float]:
    rates = (seen.samples_per_second, seen.compute_samples_per_second, seen.loader_samples_per_second)
    return {kind: rate for kind, rate in enumerate(rates) if rate is not None and 0 < rate < np.inf}


def _whole(numbers: Sequence[int]) -> Integers:
    return np.array(numbers, np.int64)


def alike(numbers: Numbers, others: Numbers) -> Floats:
    """Return 1 where the numbers are equal, else 0, (numbers, others)."""
    same: Floats = (numbers[:, None] == others[None, :]).astype(np.float64)
    return same


def along(batches: Floats, other_batches: Floats) -> Floats:
    """Return the correlation of two batches of one curve, 0 to 1; batches as logarithms."""
    octaves = (batches[:, None] - other_batches[None, :]) / np.log(2)
    near: Floats = np.exp(-0.5 * (octaves / OCTAVES) ** 2)
    return near
