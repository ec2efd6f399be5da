"""The unknowns of the law: what is believed about them before any probe, and which of them each point feels."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from autotune.knobs import knob
from autotune.knobs.influence import Factor
from autotune.records import Value
from autotune.structured.grid import CERTAIN, Floats, Grid, Hardware, Integers
from autotune.structured.grid import influence as influence_of

# Every unknown is the logarithm of something positive, normally distributed beforehand as (mean, standard deviation).
# Sources: theory note 2.1 and 2.2 (half-saturation at 10 to 55 samples on a CPU, launches of 1 to 30 ms), optuna note
# 2.1 and 8; the spreads cover a laptop and a data-centre GPU.
FIXED, SATURATION, SHARPNESS, OPTIMIZER, LOADING, CAP, SCALING, SHARE, CROWDING = range(9)
STATIC, SAMPLE, BEND, WORKER = range(9, 13)
BELIEFS = {
    FIXED: (math.log(0.01), 1.5),  # seconds of a micro-batch that do not depend on its size
    SATURATION: (math.log(64), 1.8),  # samples at which the part that does depend on it is as large
    SHARPNESS: (math.log(0.4), 0.8),  # how suddenly the one takes over from the other, above 1
    OPTIMIZER: (math.log(0.25), 0.8),  # of an optimizer step, in units of FIXED
    LOADING: (math.log(1e-3), 2.5),  # seconds in which one process loads one sample
    CAP: (math.log(8), 1.0),  # as many workers' worth of samples storage or cores can deliver
    SCALING: (math.log(0.93), 0.1),  # exponent of the workers
    SHARE: (math.log(0.7), 0.5),  # of loading, spent on a core
    CROWDING: (math.log(0.03), 0.8),  # of computing, by which it takes longer where others want all cores
    STATIC: (math.log(0.2), 0.7),  # memory that does not depend on the batch, in units of the limit
    SAMPLE: (math.log(1 / 500), 3.0),  # memory of one sample, in units of the limit: from tabular rows to volumes
    BEND: (math.log(0.1), 0.8),  # how suddenly samples take over from a flat start, above 1
    WORKER: (math.log(0.01), 1.5),  # memory of one worker in units of the limit, where workers live in that memory
}
# On a CPU, in units of what loading takes on a core: for so long computing stands still. Threads wait for the one whose
# core a worker has, and spin on the others': 1.6 to 4.3 on the surface jpeg_cnn (two cores), 11 in measurement note C4.
CROWDING_ON_CORES = (math.log(2.5), 0.9)
# Of a sample's time, with half as many threads on a CPU: 1.5 to 1.7 in a residual network and in a transformer, 1.5 to
# 2 in a small CNN (surfaces resnet, char_transformer, jpeg_cnn). Beyond torch's own count, which is that of physical
# cores unless somebody says otherwise, nothing is foreseen.
HALVED = Factor(1.6, 0.2)
# A process that has imported torch and holds a small model takes 0.25 to 0.5 GiB, of a limit between 0.5 and 100 GiB.
STATIC_ON_CORES = (math.log(0.1), 1.5)
LEAST_SPREAD = 1e-3  # of what a knob is certain of: a fit divides by it
CLOCKS = ("fixed_time", "sample_time", "fixed_memory", "sample_memory", "loading_time", "crowding")
CAP_SPREAD = 0.5  # storage may deliver less than the cores could take, waiting may need fewer cores than workers


class Parameters:
    """Prior means and standard deviations of all unknowns, and the effects of categories as matrices."""

    def __init__(self, grid: Grid, hardware: Hardware) -> None:
        beliefs = dict(BELIEFS)
        if hardware.cores:
            beliefs[CAP] = (math.log(hardware.cores), CAP_SPREAD)
        if hardware.computes_on_cores:
            beliefs[CROWDING], beliefs[STATIC] = CROWDING_ON_CORES, STATIC_ON_CORES
        self._means = [beliefs[index][0] for index in range(len(beliefs))]
        self._spreads = [beliefs[index][1] for index in range(len(beliefs))]
        self._grid = grid
        self._effects = {clock: {name: self._columns(name, clock) for name in grid.acting(clock)} for clock in CLOCKS}
        self._halvings = self._halved(hardware) if hardware.computes_on_cores else np.zeros(len(grid))
        self.halved = self._new(HALVED) if self._halvings.any() else []  # the unknown that fewer threads bring in
        self.means, self.spreads = np.array(self._means), np.array(self._spreads)
        rows = np.arange(len(grid))
        felt = self.design("fixed_memory", rows).sum(0) + self.design("sample_memory", rows).sum(0)
        felt[[STATIC, SAMPLE, BEND, WORKER]] = 1
        self.of_memory, self.of_clocks = np.flatnonzero(felt), np.flatnonzero(felt == 0)  # no law feels both

    def __len__(self) -> int:
        return len(self.means)

    def design(self, clock: str, rows: Integers) -> Floats:
        """Per row a line that says how often the logarithm of every unknown adds to that of `clock` there."""
        lines = np.zeros((len(rows), len(self.means)))
        for name, columns in self._effects[clock].items():
            table = np.zeros((len(columns), len(self.means)))
            for place, felt in enumerate(columns):
                table[place, felt] = 1.0
            lines += table[self._grid.codes[name][rows]]
        if clock == "sample_time":
            lines[:, self.halved] = self._halvings[rows, None]
        return lines

    def _halved(self, hardware: Hardware) -> Floats:
        """Per point how many times fewer threads compute than torch would take, as powers of two."""
        own = hardware.own_threads
        found: Floats = np.log2(own / np.minimum(self._grid.threads(own), own))
        return found

    def _columns(self, name: str, clock: str) -> list[list[int]]:
        """For every value of a category the unknowns that it feels: its own, and those of what it is taken against."""
        domain = self._grid.domains[name]
        said = [influence_of(name, value) for value in domain]
        factors = [getattr(influence, clock) for influence in said]
        if knob(name).ordered:
            walk: list[list[int]] = [[]]
            for below, factor in pairwise(factors):
                walk.append(walk[-1] + self._new(factor if factor != CERTAIN else below))
            return walk
        felt: dict[Value, list[int]] = {None: []}  # what is relative to nothing is relative to the default
        for value, influence, factor in zip(domain, said, factors, strict=True):
            if influence.relative_to not in felt:  # not searched here, and yet what this value resembles
                resembled = influence_of(name, influence.relative_to)
                felt[influence.relative_to] = self._new(getattr(resembled, clock))
            felt[value] = felt[influence.relative_to] + self._new(factor)
        return [felt[value] for value in domain]

    def _new(self, factor: Factor) -> list[int]:
        """A further unknown, or none where nothing is multiplied."""
        if factor == CERTAIN:
            return []
        self._means.append(math.log(factor.center))
        self._spreads.append(max(factor.spread, LEAST_SPREAD))
        return [len(self._means) - 1]
