"""Configurations as columns of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.core.records import Value
from autotune.core.stats import Floats
from autotune.knobs import knob, worker_knob
from autotune.knobs.base import MemoryEffect
from autotune.knobs.influence import Factor, Influence
from autotune.sampler.configurations import Configurations, Points

Integers = NDArray[np.int64]
BATCH, ACCUMULATION = "batch_size", "gradient_accumulation_steps"
CERTAIN = Factor()


@dataclass(frozen=True)
class Hardware:
    """The facts of a machine that the performance model needs."""

    cores: int | None = None  # that this process may use
    computes_on_cores: bool = False  # a CPU target: loading and computing compete for cores
    threads: int | None = None  # torch's own count on a CPU; None: as many as cores

    @property
    def own_threads(self) -> int:
        """Return the number of threads that torch uses by default, at most the number of cores."""
        cores = self.cores or self.threads or 1
        return max(1, min(self.threads or cores, cores))


class Grid:
    """Some configurations in a fixed order: one row each, and the columns that the performance model reads."""

    def __init__(
        self, domains: Mapping[str, Sequence[Value]], codes: Mapping[str, Integers], *, on_cores: bool = False
    ) -> None:
        """`domains`: the values of every knob in search order; `codes`: for each knob, the place of every row's value.

        `on_cores`: the model computes on a CPU.
        """
        self._on_cores = on_cores
        self.domains = {name: tuple(domain) for name, domain in domains.items()}
        self.codes = {name: codes[name] for name, domain in self.domains.items() if len(domain) > 1}
        self._length = len(next(iter(codes.values())))
        self.worker_knob = worker_knob().name
        self.batch, self.accumulation, self.workers = map(self._column, (BATCH, ACCUMULATION, self.worker_knob))

    @classmethod
    def at(
        cls, configs: Configurations, points: Points, domains: Mapping[str, Sequence[Value]],
        further: Sequence[Mapping[str, Value]] = (), *, on_cores: bool = False,
    ) -> Grid:  # fmt: skip
        """Return a grid of these configurations and of `further` ones: values of every knob, even beyond `domains`."""
        wider = widened(configs, domains, further)
        places = {name: {value: place for place, value in enumerate(values)} for name, values in wider.items()}
        added = {name: np.array([places[name][row[name]] for row in further], np.int64) for name in wider}
        codes = configs.codes(points, places)
        columns = {name: np.concatenate([codes[name], added[name]]) for name in wider}
        return cls(wider, columns, on_cores=on_cores)

    def __len__(self) -> int:
        return self._length

    @property
    def categories(self) -> tuple[str, ...]:
        """The knobs whose values differ between points, without the variables of the model itself."""
        return tuple(name for name in self.codes if name not in (BATCH, ACCUMULATION, self.worker_knob))

    @cached_property
    def influences(self) -> dict[str, list[Influence]]:
        """The prior influence of each value of each category."""
        return {name: [self.influence(name, value) for value in self.domains[name]] for name in self.categories}

    def influence(self, name: str, value: Value) -> Influence:
        """Return the prior effect of `value` of the knob `name`; none on memory where the knob says so."""
        one = knob(name)
        found = one.influence(value)
        found = found.on_cores or found if self._on_cores else found
        if one.memory in (MemoryEffect.NONE, MemoryEffect.GROWS_HOST):
            return replace(found, fixed_memory=CERTAIN, sample_memory=CERTAIN)
        return found

    def acting(self, *clocks: str) -> tuple[str, ...]:
        """Return the categories with a value that moves one of these fields of `Influence`."""
        return tuple(
            name
            for name in self.categories
            if any(getattr(one, clock) != CERTAIN for one in self.influences[name] for clock in clocks)
        )

    @property
    def thread_knobs(self) -> tuple[str, ...]:
        """The categories that set the number of computing threads."""
        return tuple(
            name for name in self.categories if knob(name).computing_threads(self.domains[name][0], 1) is not None
        )

    def group(self, names: Sequence[str]) -> Integers:
        """Return a number for every point, equal where all `names` have equal values."""
        found = np.zeros(len(self), np.int64)
        for name in dict.fromkeys(names):
            if name in self.codes:
                _, found = np.unique(found * len(self.domains[name]) + self.codes[name], return_inverse=True)
        return found.astype(np.int64)

    @property
    def compiles(self) -> NDArray[np.bool_]:
        """For every point, whether it compiles the model or times algorithms before its steps are steady."""
        found = np.zeros(len(self), bool)
        for name, domain in self.domains.items():
            if any(takes := [knob(name).compiling_seconds(value) > 0 for value in domain]):
                found |= np.array(takes)[self._coded(name)]
        return found

    def threads(self, own: int) -> Floats:
        """Return how many threads compute at every point on a CPU target, where torch by itself takes `own`."""
        found = np.full(len(self), float(own))
        for name, domain in self.domains.items():
            counts = [knob(name).computing_threads(value, own) for value in domain]
            if None not in counts:
                found = np.maximum(np.array(counts, float)[self._coded(name)], 1.0)
        return found

    def _coded(self, name: str) -> Integers:
        return self.codes[name] if name in self.codes else np.zeros(len(self), np.int64)

    def _column(self, name: str) -> Floats:
        found: Floats = np.array(self.domains[name], float)[self._coded(name)]
        return found


def widened(
    configs: Configurations, domains: Mapping[str, Sequence[Value]], further: Sequence[Mapping[str, Value]]
) -> dict[str, Sequence[Value]]:
    """Return `domains` with all values of `configs` and `further` added: a limit may have excluded some of them.

    Such a value is the baseline's, or one that stands for all values that have no effect without workers.
    """
    return {
        name: tuple(dict.fromkeys((*values, *configs.values(name), *(row[name] for row in further))))
        for name, values in domains.items()
    }
