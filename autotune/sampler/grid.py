"""The finite grid of configurations, as columns of numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.records import Value
from autotune.knobs import knob, worker_knob
from autotune.knobs.base import MemoryEffect
from autotune.knobs.influence import Factor, Influence

Floats = NDArray[np.float64]
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
        """Torch's own count of threads, at most the cores."""
        cores = self.cores or self.threads or 1
        return max(1, min(self.threads or cores, cores))


class Grid:
    """Points in a fixed order, each with its Optuna parameters and its knob values."""

    def __init__(
        self, params: Sequence[Mapping[str, Any]], values: Sequence[Mapping[str, Value]],
        domains: Mapping[str, Sequence[Value]],
    ) -> None:  # fmt: skip
        """`params` and `values` have an entry for every point; `domains` the values of each knob in search order."""
        self.params, self.values = params, values
        self.domains = {name: tuple(domain) for name, domain in domains.items()}
        self._rows = {_key(point): row for row, point in enumerate(params)}
        self.worker_knob = worker_knob().name
        self.codes = {name: self._coded(name) for name, domain in self.domains.items() if len(domain) > 1}
        self.batch, self.accumulation, self.workers = map(self._column, (BATCH, ACCUMULATION, self.worker_knob))

    def __len__(self) -> int:
        return len(self.params)

    def row(self, params: Mapping[str, Any]) -> int | None:
        """Return where the configuration with these parameters is, or None if it lies outside."""
        return self._rows.get(_key(params))

    def widened(self, values: Sequence[Mapping[str, Value]]) -> Grid:
        """Return the same grid with further points at its end, to which no parameters lead."""
        params = [*self.params, *({"further": number} for number in range(len(values)))]
        domains = {
            name: tuple(dict.fromkeys((*domain, *(point[name] for point in values))))
            for name, domain in self.domains.items()
        }
        return Grid(params, [*self.values, *values], domains)

    @property
    def categories(self) -> tuple[str, ...]:
        """The knobs that differ between points and are no variables of the model itself."""
        return tuple(name for name in self.codes if name not in (BATCH, ACCUMULATION, self.worker_knob))

    def acting(self, *clocks: str) -> tuple[str, ...]:
        """Return the categories with a value that moves one of these fields of `Influence`."""
        return tuple(
            name
            for name in self.categories
            if any(getattr(influence(name, v), clock) != CERTAIN for v in self.domains[name] for clock in clocks)
        )

    def group(self, names: Sequence[str]) -> Integers:
        """Return a number for every point, equal where all `names` have equal values."""
        found = np.zeros(len(self), np.int64)
        for name in names:
            if name in self.codes:
                found = found * len(self.domains[name]) + self.codes[name]
        return found

    @property
    def compiles(self) -> NDArray[np.bool_]:
        """Whether every point compiles the model before its steps are steady."""
        found = np.zeros(len(self), bool)
        for name, domain in self.domains.items():
            if knob(name).compiles:
                found |= np.array([value != knob(name).default for value in domain])[self._coded(name)]
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
        places = {value: place for place, value in enumerate(self.domains[name])}
        return np.array([places[values[name]] for values in self.values], np.int64)

    def _column(self, name: str) -> Floats:
        return np.array([values[name] for values in self.values], float)


def influence(name: str, value: Value) -> Influence:
    """Return what `value` of the knob `name` probably does; nothing to memory where the knob says so."""
    one = knob(name)
    found = one.influence(value)
    if one.memory in (MemoryEffect.NONE, MemoryEffect.GROWS_HOST):
        return replace(found, fixed_memory=CERTAIN, sample_memory=CERTAIN)
    return found


def _key(params: Mapping[str, Any]) -> Hashable:
    return frozenset(params.items())
