"""Proposing configurations with Optuna: the encoding of the space, the samplers, and the guard before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from autotune.forecast import Foretold
from autotune.guard import Admission
from autotune.knobs import KNOBS, knob
from autotune.knobs.base import MemoryEffect
from autotune.prediction import Expectation, Fit, Prediction
from autotune.records import Config, Environment
from autotune.sampler_names import SamplerName
from autotune.space import SearchSpace
from autotune.structured.grid import Grid, Hardware
from autotune.structured.sampler import StructuredSampler

STARTUP_TRIALS = 5  # random probes first: 5 needed 28 probes to come within 5 %, Optuna's 10 needed 37 (simulated)
ATTEMPTS = 20  # proposals drawn before the nearest admitted neighbour is taken instead


class Encoding:
    """Configurations as Optuna parameters: ordered knobs by rank, so that a batch is its exponent of two."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self.ordered = space.configs
        self.configs = frozenset(space.configs)
        self.distributions: dict[str, BaseDistribution] = {
            name: IntDistribution(0, len(values) - 1) if knob(name).ordered else CategoricalDistribution(values)
            for name, values in space.free.items()
        }

    def params(self, config: Config) -> dict[str, Any] | None:
        """The parameters of `config`, or None if it lies outside the space."""
        free = self._space.free
        if any(config[name] not in values for name, values in free.items()):
            return None
        return {
            name: values.index(config[name]) if knob(name).ordered else config[name] for name, values in free.items()
        }

    def config(self, params: dict[str, Any]) -> Config:
        """The configuration behind complete parameters."""
        free = self._space.free
        return self._space.complete(
            {name: values[params[name]] if knob(name).ordered else params[name] for name, values in free.items()}
        )

    def grid(self) -> Grid:
        """Every configuration of the space, as the structured sampler looks at them."""
        configs = self._space.configs
        params = [self.params(config) for config in configs]
        assert all(point is not None for point in params), "every configuration of a space has parameters"
        values = [config.values for config in configs]
        return Grid([point for point in params if point is not None], values, self._space.domains)

    def distance(self, one: Config, other: Config) -> float:
        """Steps between two configurations: ranks for ordered knobs, 1 for another category."""
        total = 0.0
        for name, values in self._space.free.items():
            if not knob(name).ordered:
                total += one[name] != other[name]
            elif one[name] in values and other[name] in values:
                total += abs(values.index(one[name]) - values.index(other[name]))
        return total


def hardware(environment: Environment) -> Hardware:
    """What the structured sampler is told of a machine."""
    return Hardware(
        cores=environment.usable_cores,
        computes_on_cores=environment.device_kind == "cpu",
        threads=environment.default_threads,
    )


def make(
    name: SamplerName, seed: int, encoding: Encoding | None = None, guard: Admission | None = None,
    machine: Hardware | None = None, foretold: Callable[[Config], Foretold | None] | None = None,
    worth: Callable[[Config], float] | None = None,
) -> BaseSampler:  # fmt: skip
    """A sampler. `gp` computes with torch, in this process, on the CPU; only `structured` looks beyond name and seed.

    `foretold`: what a dry run says of the memory of a configuration, None where it cannot say.
    `worth`: the score for one sample/s of a configuration, if it is known beforehand.

    Seeds with the number of trials so far mixed in: after a resume a sampler must not repeat its first draws.
    """
    if name == "structured":
        if encoding is None or guard is None:
            return StructuredSampler(seed=seed, hardware=machine)
        return StructuredSampler(
            seed=seed, hardware=machine, grid=encoding.grid(), space=encoding.distributions,
            admits=lambda row: guard.admits(encoding.ordered[row]),
            foretold=None if foretold is None else lambda row: foretold(encoding.ordered[row]),
            worth=None if worth is None else lambda row: worth(encoding.ordered[row]),
        )  # fmt: skip
    if name == "gp":
        return GPSampler(seed=seed, n_startup_trials=STARTUP_TRIALS)
    if name == "random":
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS)


class GuardedSampler(BaseSampler):
    """Any sampler, behind the guard: only configurations that could teach something are ever proposed.

    A proposal that the guard refuses costs no trial: another is drawn, and at last the nearest admitted neighbour
    taken. The caller sees to it that something remains.
    """

    def __init__(self, inner: BaseSampler, encoding: Encoding, guard: Admission) -> None:
        self._inner, self._encoding, self._guard = inner, encoding, guard
        # These maximise: asked again they fit again, for as long, and say the same again.
        self._attempts = 1 if isinstance(inner, GPSampler | StructuredSampler) else ATTEMPTS

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The whole space, from the first trial on."""
        return self._encoding.distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A complete, admitted set of parameters."""
        for _ in range(self._attempts):
            params = self._inner.sample_relative(study, trial, search_space)
            missing = [name for name in search_space if name not in params]
            for name in missing:
                params[name] = self._inner.sample_independent(study, trial, name, search_space[name])
            proposal = self._encoding.config(params)
            if proposal in self._encoding.configs and self._guard.admits(proposal):
                return params
        nearest = min(self._guard.remaining(), key=lambda config: self._encoding.distance(proposal, config))
        neighbour = self._encoding.params(nearest)
        assert neighbour is not None, "every configuration of a space has parameters"
        return neighbour

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Not reached: `sample_relative` leaves nothing out."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def faster_elsewhere(self, study: optuna.Study) -> float | None:
        """By which share no other configuration is expected to be faster (90 %), where the sampler has an opinion."""
        return self._inner.faster_elsewhere(study) if isinstance(self._inner, StructuredSampler) else None

    def fit(self, study: optuna.Study) -> Fit | None:
        """What was learned of every arm and micro-batch, where the sampler has an opinion; an arm as charts draw it."""
        if not isinstance(self._inner, StructuredSampler):
            return None
        told = [one.name for one in KNOBS if not one.ordered and one.memory is MemoryEffect.CHANGES]
        ordered = self._encoding.ordered
        arms = [(config.batch_size, *(config[name] for name in told)) for config in ordered]
        numbers = {arm: number for number, arm in enumerate(dict.fromkeys(arms))}
        found = self._inner.foreseen(study, np.array([numbers[arm] for arm in arms], np.int64))
        points = tuple(Expectation(values=ordered[row].values, expected=expected) for row, expected in found)
        return Fit(points=points) if points else None

    def expected(self, study: optuna.Study, configs: Sequence[Config]) -> list[tuple[Config, Prediction]]:
        """What is expected of configurations outside the space, where the sampler has an opinion."""
        if not configs or not isinstance(self._inner, StructuredSampler):
            return []
        found = self._inner.expected(study, [config.values for config in configs])
        return list(zip(configs, found, strict=False))

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Pass on."""
        self._inner.before_trial(study, trial)

    def after_trial(self, study: optuna.Study, trial: FrozenTrial, state: optuna.trial.TrialState, values: Any) -> None:
        """Pass on."""
        self._inner.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Pass on."""
        self._inner.reseed_rng()
