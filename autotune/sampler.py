"""Proposing configurations with Optuna: the encoding of the space, the samplers, and the guard before them."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from autotune.guard import Guard
from autotune.knobs import knob
from autotune.records import Config
from autotune.sampler_names import SamplerName
from autotune.space import SearchSpace

STARTUP_TRIALS = 5  # random probes first: 5 needed 28 probes to come within 5 %, Optuna's 10 needed 37 (simulated)
ATTEMPTS = 20  # proposals drawn before the nearest admitted neighbour is taken instead


class Encoding:
    """Configurations as Optuna parameters: ordered knobs by rank, so that a batch is its exponent of two."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
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

    def distance(self, one: Config, other: Config) -> float:
        """Steps between two configurations: ranks for ordered knobs, 1 for another category."""
        total = 0.0
        for name, values in self._space.free.items():
            if not knob(name).ordered:
                total += one[name] != other[name]
            elif one[name] in values and other[name] in values:
                total += abs(values.index(one[name]) - values.index(other[name]))
        return total


def make(name: SamplerName, seed: int) -> BaseSampler:
    """A stock sampler. `gp` computes with torch, in this process, on the CPU.

    Seeds with the number of trials so far mixed in: after a resume a sampler must not repeat its first draws.
    """
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

    def __init__(self, inner: BaseSampler, encoding: Encoding, guard: Guard) -> None:
        self._inner, self._encoding, self._guard = inner, encoding, guard
        # GP maximises: asked again it fits again, for a second, and says the same again.
        self._attempts = 1 if isinstance(inner, GPSampler) else ATTEMPTS

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

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Pass on."""
        self._inner.before_trial(study, trial)

    def after_trial(self, study: optuna.Study, trial: FrozenTrial, state: optuna.trial.TrialState, values: Any) -> None:
        """Pass on."""
        self._inner.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Pass on."""
        self._inner.reseed_rng()
