"""The finite grid of configurations that the model looks at, as columns of numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.knobs import KNOBS
from autotune.knobs.base import Knob, MemoryEffect
from autotune.knobs.influence import NEUTRAL, UNKNOWN, Factor, Influence
from autotune.records import Value

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
BATCH, ACCUMULATION = "batch_size", "gradient_accumulation_steps"
CERTAIN = Factor()


@dataclass(frozen=True)
class Hardware:
    """What the model is told about the machine. What is unknown widens its expectations."""

    cores: int | None = None  # that this process may use
    computes_on_cores: bool = False  # a CPU target: loading and computing take cores from each other
    threads: int | None = None  # that torch computes with there when nobody says anything; None: as many as cores

    @property
    def own_threads(self) -> int:
        """The same, of the cores that there are."""
        cores = self.cores or self.threads or 1
        return max(1, min(self.threads or cores, cores))


class Grid:
    """Points in a fixed order: for each its parameters (what Optuna calls them) and its values (what they mean)."""

    def __init__(
        self, params: Sequence[Mapping[str, Any]], values: Sequence[Mapping[str, Value]],
        domains: Mapping[str, Sequence[Value]],
    ) -> None:  # fmt: skip
        """`params` and `values` have an entry for every point; `domains` the values of each knob in search order."""
        self.params, self.values = params, values
        self.domains = {name: tuple(domain) for name, domain in domains.items()}
        self._rows = {_key(point): row for row, point in enumerate(params)}
        workers = [name for name in self.domains if _counts_workers(name)]
        self._own = {name for name in (BATCH, ACCUMULATION, *workers) if self._counts(name)}
        self.codes = {name: self._coded(name) for name, domain in self.domains.items() if len(domain) > 1}
        self.batch = self._column(BATCH)
        self.accumulation = self._column(ACCUMULATION)
        self.worker_knob = next((name for name in workers if name in self._own), None)
        self.workers = self._column(self.worker_knob) if self.worker_knob else np.zeros(len(self))

    def __len__(self) -> int:
        return len(self.params)

    def row(self, params: Mapping[str, Any]) -> int | None:
        """Where the configuration with these parameters is, or None if it lies outside."""
        try:
            return self._rows.get(_key(params))
        except TypeError:
            return None

    def widened(self, values: Sequence[Mapping[str, Value]]) -> Grid:
        """The same grid with further points at its end, to which no parameters lead."""
        params = [*self.params, *({"further": number} for number in range(len(values)))]
        domains = {
            name: tuple(dict.fromkeys((*domain, *(point[name] for point in values))))
            for name, domain in self.domains.items()
        }
        return Grid(params, [*self.values, *values], domains)

    @property
    def categories(self) -> tuple[str, ...]:
        """The knobs that differ between points and are no variables of the model itself."""
        return tuple(name for name in self.codes if name not in self._own)

    def acting(self, *clocks: str) -> tuple[str, ...]:
        """The categories with a value that moves one of these fields of `Influence`."""
        return tuple(
            name
            for name in self.categories
            if any(getattr(self.influence(name, v), clock) != CERTAIN for v in self.domains[name] for clock in clocks)
        )

    def group(self, names: Sequence[str]) -> Integers:
        """A number for every point, equal where all `names` have equal values."""
        found = np.zeros(len(self), np.int64)
        for name in names:
            if name in self.codes:
                found = found * len(self.domains[name]) + self.codes[name]
        return found

    def influence(self, name: str, value: Value) -> Influence:
        """What `value` of `name` probably does; parameters that are no knobs of ours may do anything."""
        knob = _registered(name)
        found = knob.influence(value) if knob else UNKNOWN if value != self.domains[name][0] else NEUTRAL
        if knob and knob.memory in (MemoryEffect.NONE, MemoryEffect.GROWS_HOST):
            return replace(found, fixed_memory=CERTAIN, sample_memory=CERTAIN)
        return found

    def threads(self, own: int) -> Floats:
        """How many threads compute at every point on a CPU target, where torch by itself takes `own`."""
        found = np.full(len(self), float(own))
        for name, domain in self.domains.items():
            knob = _registered(name)
            said = [knob.computing_threads(value, own) if knob else None for value in domain]
            if None not in said:
                found = np.maximum(np.array(said, float)[self._coded(name)], 1.0)
        return found

    def is_ordered(self, name: str) -> bool:
        """Whether neighbours in the domain of `name` are alike."""
        knob = _registered(name)
        return knob.ordered if knob else all(_is_count(value, -np.inf) for value in self.domains[name])

    def default(self, name: str) -> Value:
        """The value that the others are taken against."""
        knob = _registered(name)
        return knob.default if knob else self.domains[name][0]

    def _coded(self, name: str) -> Integers:
        places = {repr(value): place for place, value in enumerate(self.domains[name])}
        return np.array([places[repr(values[name])] for values in self.values], np.int64)

    def _column(self, name: str) -> Floats:
        if name not in self._own:
            return np.ones(len(self))
        return np.array([values[name] for values in self.values], float)

    def _counts(self, name: str) -> bool:
        least = 0 if _counts_workers(name) else 1
        return name in self.domains and all(_is_count(value, least) for value in self.domains[name])


def _registered(name: str) -> Knob | None:
    return next((knob for knob in KNOBS if knob.name == name), None)


def _counts_workers(name: str) -> bool:
    knob = _registered(name)
    return knob is not None and knob.counts_workers


def _is_count(value: Value, least: float) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _key(params: Mapping[str, Any]) -> Hashable:
    return tuple(sorted((name, repr(value)) for name, value in params.items()))
