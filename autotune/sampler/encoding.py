"""The encoding of configurations as parameters of Optuna."""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from autotune.core.records import Config, Value
from autotune.knobs import knob
from autotune.sampler.space import SearchSpace


class Encoding:
    """Configurations as Optuna parameters: ordered knobs by position, so that a batch is its exponent of two."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self.configs, self.domains = space.configs, space.domains
        self.distributions: dict[str, BaseDistribution] = {
            name: IntDistribution(0, len(values) - 1) if knob(name).ordered else CategoricalDistribution(values)
            for name, values in space.free.items()
        }

    def params(self, config: Config) -> dict[str, Any] | None:
        """Return parameters that lead to `config`, or None if it lies outside the space."""
        found = {}
        for name, values in self._space.free.items():
            value = config[name] if config[name] in values else self._folded(config, name)
            if value not in values:
                return None
            found[name] = values.index(value) if knob(name).ordered else value
        return found

    def _folded(self, config: Config, name: str) -> Value:
        """Return the knob's value in `config`, or the value of the space that trains exactly as it does."""
        values = self._space.free[name]
        alike = (value for value in values if self._space.complete(config.values | {name: value}) == config)
        return next(alike, config[name])

    def config(self, params: dict[str, Any]) -> Config:
        """Return the configuration of complete parameters."""
        free = self._space.free
        return self._space.complete(
            {name: values[params[name]] if knob(name).ordered else params[name] for name, values in free.items()}
        )

    def distance(self, one: Config, other: Config) -> float:
        """Return the distance of two configurations: ranks for ordered knobs, 1 for each other knob that differs."""
        total = 0.0
        for name, values in self._space.free.items():
            if not knob(name).ordered:
                total += one[name] != other[name]
            elif one[name] in values and other[name] in values:
                total += abs(values.index(one[name]) - values.index(other[name]))
        return total
