"""The proposals of configurations through Optuna: the samplers, and the guard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from autotune.core.records import Config, Environment
from autotune.sampler.encoding import Encoding
from autotune.sampler.grid import Hardware
from autotune.sampler.guard import Admission
from autotune.sampler.names import SamplerName
from autotune.sampler.prediction import Prediction
from autotune.sampler.structured import NOTHING_ELSE, Knowledge, StructuredSampler

STARTUP_TRIALS = 5  # random probes first: 5 needed 28 probes to come within 5 %, Optuna's 10 needed 37 (simulated)
DRAWING_ATTEMPTS = 20  # proposals drawn before the nearest admitted neighbour is taken instead


def hardware(environment: Environment) -> Hardware:
    """Return the facts of a machine that the model-based sampler needs."""
    return Hardware(
        cores=environment.usable_cores,
        computes_on_cores=environment.device_kind == "cpu",
        threads=environment.default_threads,
    )


def make_sampler(
    name: SamplerName, seed: int, encoding: Encoding, guard: Admission, machine: Hardware,
    knowledge: Knowledge = NOTHING_ELSE,
) -> BaseSampler:  # fmt: skip
    """Return a sampler. `gp` computes with torch, in this process, on the CPU; only `structured` uses more than a seed.

    `seed` should depend on the number of trials so far: after a resume a sampler must not repeat its first draws.
    """
    if name == "structured":
        return StructuredSampler(
            seed=seed, hardware=machine, encoding=encoding, admits=guard.admits, knowledge=knowledge
        )
    if name == "gp":
        return GPSampler(seed=seed, n_startup_trials=STARTUP_TRIALS)
    if name == "random":
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS)


class GuardedSampler(BaseSampler):
    """Any sampler, behind the guard: it proposes only configurations whose probe would be informative.

    A proposal that the guard refuses costs no trial: another is drawn, and after `DRAWING_ATTEMPTS` the nearest
    admitted neighbour is taken. The caller ensures that a configuration remains.
    """

    def __init__(self, inner: BaseSampler, encoding: Encoding, guard: Admission) -> None:
        self._inner, self._encoding, self._guard = inner, encoding, guard
        # These two samplers maximise: asked again, they would fit again and propose the same.
        self._attempts = 1 if isinstance(inner, GPSampler | StructuredSampler) else DRAWING_ATTEMPTS
        self.prediction: Prediction | None = None  # for the latest proposal, where the inner sampler makes one

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the whole space, from the first trial on."""
        return self._encoding.distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a complete, admitted set of parameters."""
        self.prediction = None
        for _ in range(self._attempts):
            params = self._inner.sample_relative(study, trial, search_space)
            missing = [name for name in search_space if name not in params]
            for name in missing:
                params[name] = self._inner.sample_independent(study, trial, name, search_space[name])
            proposal = self._encoding.config(params)
            if proposal in self._encoding.configs and self._guard.admits(proposal):
                self.prediction = self._inner.prediction if isinstance(self._inner, StructuredSampler) else None
                return params
        nearest = min(self._guard.remaining(), key=lambda config: self._encoding.distance(proposal, config))
        neighbour = self._encoding.params(nearest)
        assert neighbour is not None, "every configuration of a space has parameters"
        return neighbour

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Ask the inner sampler. Not reached, because `sample_relative` leaves no parameter out."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def faster_elsewhere(self, study: optuna.Study) -> float | None:
        """Return the share by which no other configuration is expected to beat the best (90 %); None: no model."""
        return self._inner.faster_elsewhere(study) if isinstance(self._inner, StructuredSampler) else None

    def expected(self, study: optuna.Study, configs: Sequence[Config]) -> list[tuple[Config, Prediction]]:
        """Return predictions for `configs`, even outside the space; empty if the sampler has no model."""
        if not configs or not isinstance(self._inner, StructuredSampler):
            return []
        found = self._inner.expected(study, [config.values for config in configs])
        return list(zip(configs, found, strict=False))

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Tell the inner sampler that a trial begins."""
        self._inner.before_trial(study, trial)

    def after_trial(self, study: optuna.Study, trial: FrozenTrial, state: optuna.trial.TrialState, values: Any) -> None:
        """Tell the inner sampler that a trial has ended."""
        self._inner.after_trial(study, trial, state, values)
