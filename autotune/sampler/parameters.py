"""The unknowns of the performance model: their prior distributions, and which of them act on each point."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from autotune.core.records import Value
from autotune.core.stats import Floats
from autotune.knobs import knob
from autotune.knobs.influence import Factor
from autotune.sampler.grid import CERTAIN, Grid, Hardware, Integers

# Every unknown is the logarithm of a positive quantity, with a normal prior (mean, standard deviation).
# Sources: docs/notes/throughput.md 1 and 2 (half-saturation at 10 to 55 samples on a CPU, launches of 1 to 30 ms),
# docs/notes/search.md 1; the spreads cover a laptop and a data-centre GPU.
FIXED, SATURATION, SHARPNESS, OPTIMIZER, LOADING, CAP, SCALING, SHARE, OVERSUBSCRIPTION = range(9)
STATIC, SAMPLE, BEND, WORKER = range(9, 13)
OF_CLOCKS, OF_MEMORY = range(9), range(9, 13)  # those of the model itself; further ones belong to knobs
PRIORS = {
    FIXED: (math.log(0.01), 1.5),  # seconds of a micro-batch that do not depend on its size
    SATURATION: (math.log(64), 1.8),  # samples that take as long as the fixed part
    SHARPNESS: (math.log(0.4), 0.8),  # exponent of the turn from fixed to growing, above 1
    OPTIMIZER: (math.log(0.25), 0.8),  # seconds of an optimizer step, in units of FIXED
    LOADING: (math.log(1e-3), 2.5),  # seconds for one process to load one sample
    CAP: (math.log(8), 1.0),  # most that storage or cores deliver, in units of one worker's rate
    SCALING: (math.log(0.93), 0.1),  # exponent of the workers' scaling
    SHARE: (math.log(0.7), 0.5),  # share of loading that uses a core
    OVERSUBSCRIPTION: (math.log(0.03), 0.8),  # share by which computing slows where all cores are wanted
    STATIC: (math.log(0.2), 0.7),  # memory that does not depend on the batch, in units of the limit
    SAMPLE: (math.log(1 / 500), 3.0),  # memory of one sample, in the same units: from tabular rows to volumes
    BEND: (math.log(0.1), 0.8),  # exponent of the turn from static to growing memory, above 1
    WORKER: (math.log(0.01), 1.5),  # memory of one worker in the same units, on a CPU
}
# Seconds for which computing stalls on a CPU, in units of the core seconds of loading. Threads spin while they wait for
# the thread whose core a worker uses: 1.6 to 4.3 on the surface jpeg_cnn (two cores), 11 in docs/notes/timing.md 4.
OVERSUBSCRIPTION_ON_CORES = (math.log(2.5), 0.9)
# Factor of a sample's time with half as many threads on a CPU: 1.5 to 1.7 in a residual network and in a transformer,
# 1.5 to 2 in a small CNN (surfaces resnet, char_transformer, jpeg_cnn). Threads beyond torch's own count, which is the
# number of physical cores by default, have no effect in the model.
HALVED = Factor(1.6, 0.2)
# A process that has imported torch and holds a small model takes 0.25 to 0.5 GiB, of a limit between 0.5 and 100 GiB.
STATIC_ON_CORES = (math.log(0.1), 1.5)
LEAST_SPREAD = 1e-3  # of an unknown about which a knob is certain: not 0, because a fit divides by it
CLOCKS = ("fixed_time", "sample_time", "fixed_memory", "sample_memory", "loading_time", "oversubscription")
CAP_SPREAD = 0.5  # storage may be slower than the cores, and workers that wait need no core


class Parameters:
    """Prior means and standard deviations of all unknowns, and the design matrices of the categories."""

    def __init__(self, grid: Grid, hardware: Hardware) -> None:
        priors = dict(PRIORS)
        if hardware.cores:
            priors[CAP] = (math.log(hardware.cores), CAP_SPREAD)
        if hardware.computes_on_cores:
            priors[OVERSUBSCRIPTION], priors[STATIC] = OVERSUBSCRIPTION_ON_CORES, STATIC_ON_CORES
        self._means = [priors[index][0] for index in range(len(priors))]
        self._spreads = [priors[index][1] for index in range(len(priors))]
        self._grid = grid
        self._effects = {clock: {name: self._columns(name, clock) for name in grid.acting(clock)} for clock in CLOCKS}
        self._halvings = self._halved(hardware) if hardware.computes_on_cores else np.zeros(len(grid))
        self.halved = self._new(HALVED) if hardware.computes_on_cores else []  # the unknown of fewer threads
        self.means, self.spreads = np.array(self._means), np.array(self._spreads)

    def __len__(self) -> int:
        return len(self.means)

    def design(self, clock: str, rows: Integers) -> Floats:
        """Return the design matrix of `clock`, (rows, unknowns): how often each unknown adds to its logarithm."""
        lines = np.zeros((len(rows), len(self.means)))
        for name in self._effects[clock]:
            lines += self.table(clock, name)[self._grid.codes[name][rows]]
        if clock == "sample_time":
            lines[:, self.halved] = self._halvings[rows, None]
        return lines

    def table(self, clock: str, name: str) -> Floats:
        """Return for every value of a knob which unknowns act on `clock`, (values, unknowns)."""
        columns = self._effects[clock].get(name, [[]] * len(self._grid.domains[name]))
        found = np.zeros((len(columns), len(self.means)))
        for place, acting in enumerate(columns):
            found[place, acting] = 1.0
        return found

    def _halved(self, hardware: Hardware) -> Floats:
        """Return per point log2 of torch's own count of threads over the count of computing threads, at least 0."""
        own = hardware.own_threads
        found: Floats = np.log2(own / np.minimum(self._grid.threads(own), own))
        return found

    def _columns(self, name: str, clock: str) -> list[list[int]]:
        """Return the unknowns that act for every value of a category: its own, and those of the value it refers to."""
        domain = self._grid.domains[name]
        influences = self._grid.influences[name]
        factors = [getattr(influence, clock) for influence in influences]
        if knob(name).ordered:
            walk: list[list[int]] = [[]]
            for below, factor in pairwise(factors):
                walk.append(walk[-1] + self._new(factor if factor != CERTAIN else below))
            return walk
        acting: dict[Value, list[int]] = {None: []}  # relative to None is relative to the default
        for value, influence, factor in zip(domain, influences, factors, strict=True):
            if influence.relative_to not in acting:  # the value referred to is not searched here
                resembled = self._grid.influence(name, influence.relative_to)
                acting[influence.relative_to] = self._new(getattr(resembled, clock))
            acting[value] = acting[influence.relative_to] + self._new(factor)
        return [acting[value] for value in domain]

    def _new(self, factor: Factor) -> list[int]:
        """Add an unknown and return its index in a list; an empty list if the factor is always 1."""
        if factor == CERTAIN:
            return []
        self._means.append(math.log(factor.center))
        self._spreads.append(max(factor.spread, LEAST_SPREAD))
        return [len(self._means) - 1]
