"""The trials of a study as the model-based sampler learns from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotune.core.records import Config
from autotune.sampler.grid import Integers
from autotune.sampler.observation import Observation

# Observations that the model is fitted to: a proposal takes 0.26 s with 200, 1.0 s with 400 (docs/notes/scaling.md 4).
MOST_FITTED = 200
RATE_ROUNDING = 1e-3  # relative; values of a sample/s that differ by no more are the same


def most_telling(values: Sequence[float | None]) -> list[int]:
    """Return the places of the observations to fit, in ascending order: all, up to `MOST_FITTED`.

    Of more: the half with the highest values, which decide what is fastest, and as many others, spread over the search.
    """
    half = MOST_FITTED // 2
    order = sorted(range(len(values)), key=lambda at: float("inf") if (value := values[at]) is None else -value)
    if len(order) <= MOST_FITTED:
        return sorted(order)
    rest = sorted(order[half:])
    return sorted(order[:half] + [rest[at * len(rest) // half] for at in range(half)])


@dataclass(frozen=True)
class Trials:
    """The observations of finished and running trials."""

    observations: Sequence[tuple[Config, Observation]]  # of finished trials that did not fail, the most telling ones
    values: Sequence[float | None]  # of these trials
    running: Sequence[Config]
    finished: int  # trials, failed ones too

    @cached_property
    def row(self) -> dict[Config, int]:
        """The row of each configuration that was probed or is running: the best measured one first."""
        rates = {config: seen.samples_per_second or 0.0 for config, seen in self.observations if seen.within_memory}
        found = (config for config, _ in self.observations)
        merit = sorted(found, key=lambda config: -rates.get(config, 0.0))
        return {config: row for row, config in enumerate(dict.fromkeys((*merit, *self.running)))}

    @property
    def measured(self) -> Integers:
        """The rows, in ascending order, that were measured and fit into memory."""
        ran = [config for config, seen in self.observations if seen.within_memory and seen.samples_per_second]
        return np.array([self.row[config] for config in ran], np.int64)

    @property
    def running_rows(self) -> Integers:
        """The rows whose probes are not finished."""
        return np.array([self.row[config] for config in self.running], np.int64)

    @property
    def limit_bytes(self) -> int | None:
        """The usable memory according to the latest observation."""
        return next((seen.limit_bytes for _, seen in reversed(self.observations) if seen.limit_bytes), None)

    @property
    def is_throughput(self) -> bool:
        """Whether the study's values are samples/s in some unit, up to rounding."""
        pairs = zip(self.observations, self.values, strict=True)
        units = [
            value / seen.samples_per_second / seen.training_share
            for (_, seen), value in pairs
            if value and seen.samples_per_second
        ]
        return not units or max(units) <= (1 + RATE_ROUNDING) * min(units)
