"""Searches over a recorded surface: generic samplers, our own and a plain grid, by ask and tell or the real tuner."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import optuna
from optuna.trial import TrialState, create_trial

from autotune.context.reporter import SilentReporter
from autotune.core.records import SEARCH_PURPOSES, Config, StudyRequest
from autotune.core.requests import ProbeRequest
from autotune.core.results import ProbeResult, Trial, Verdict
from autotune.memory.prediction import MemoryPrediction
from autotune.memory.stage import asking
from autotune.objectives.verdict import judge
from autotune.sampler.encoding import Encoding
from autotune.sampler.guard import Guard
from autotune.sampler.names import SamplerName
from autotune.sampler.observation import observed
from autotune.sampler.optuna import GuardedSampler, hardware, make_sampler
from autotune.sampler.space import SearchSpace, build
from autotune.sampler.structured import Knowledge
from autotune.study.history import History
from autotune.tuning.engine import search
from benchmarks.surfaces.replay import ReplayLauncher
from benchmarks.surfaces.surface import Surface
from benchmarks.surfaces.tasks import Task

ENDLESS_SECONDS = 1e6  # time is no limit here
WITHIN = 0.95  # of the fastest cell: found
GRID = "grid"
UNTOLD = "structured without a shape run"
NAMES = ("structured", UNTOLD, "gp", "tpe", "random", GRID)


@dataclass(frozen=True)
class Run:
    """One search to its first configuration within 5 % of the best."""

    probed: tuple[Config, ...]  # in order, the baseline first
    found: bool  # the last of them is that configuration
    out_of_memory: int

    @property
    def hit(self) -> int | None:
        """Probes until then, whatever became of them; None: never."""
        return len(self.probed) if self.found else None


@dataclass(frozen=True)
class Answer:
    """One search by the real tuner to its own end."""

    searched: int  # probes before the confirmation
    confirmed: int  # probes of the confirmation, and those that share out the gain after it
    out_of_memory: int
    share: float  # of the fastest cell's samples/s, that the recommendation has on the surface


def replayed(name: str, surface: Surface, seed: int) -> Run:
    """Probe the baseline, then what the sampler says, behind the guard, until a hit or until nothing is left."""
    request, launcher, best = surface.request, ReplayLauncher(surface), surface.best[1]
    space = build(request.facts, request.environment, request.goal, request.baseline)
    guard = Guard(space)
    history = History(request)
    memory = MemoryPrediction(space, history)
    sampler = _grid(space, guard, seed) if name == GRID else _optuna(name, request, space, guard, seed, memory)
    probed, out_of_memory, config = [], 0, request.baseline
    next(sampler)
    with tempfile.TemporaryDirectory() as place:
        for number in range(len(space.configs) + 1):
            asked = ProbeRequest(target=request.target, config=config, device="cpu", number=number)
            result = launcher.run(asked, Path(place))
            trial = Trial(number=number, purpose="search", config=config, result=result)
            _, verdict = history.add(trial)
            probed.append(config)
            out_of_memory += verdict.constraints["memory"] > 0
            if verdict.feasible and (verdict.value or 0.0) >= WITHIN * best:
                return Run(probed=tuple(probed), found=True, out_of_memory=out_of_memory)
            if number == 0 and name == "structured" and surface.shape_run is not None and memory.can_bind:
                wanted = asking(request, space, memory.usable_bytes, ENDLESS_SECONDS)
                history.add_measured(wanted, launcher.run(wanted, Path(place)))
            guard.learn(trial, over_limit=verdict.constraints["memory"] > 0)
            if not guard.remaining():
                break
            config = sampler.send((config, result, verdict))
    return Run(probed=tuple(probed), found=False, out_of_memory=out_of_memory)


Shown = tuple[Config, ProbeResult, Verdict]


def _grid(space: SearchSpace, guard: Guard, seed: int) -> Generator[Config, Shown, None]:
    """Every configuration, in the order of loops over the knobs; a seed other than 0 shuffles their values' order."""
    chance, configs = random.Random(seed), list(space.configs)
    if seed:
        order = {name: chance.sample(values, len(values)) for name, values in space.free.items()}
        configs.sort(key=lambda config: tuple(values.index(config[name]) for name, values in order.items()))
    yield configs[0]
    for config in configs:
        if guard.admits(config):
            yield config


def _optuna(
    name: str, request: StudyRequest, space: SearchSpace, guard: Guard, seed: int, memory: MemoryPrediction
) -> Generator[Config, Shown, None]:
    """What an Optuna sampler proposes, told as a study of the product tells it."""
    encoding, kind = Encoding(space), cast(SamplerName, name.partition(" ")[0])
    inner = make_sampler(kind, seed, encoding, guard, hardware(request.environment), Knowledge(shape_run=memory.of))
    study = optuna.create_study(direction="maximize", sampler=GuardedSampler(inner, encoding, guard))
    usable = request.memory_limit_bytes - request.headroom_bytes
    proposal, trial = request.baseline, None
    while True:
        config, result, verdict = yield proposal
        seen = observed(result, verdict, usable).attributes()
        state, value = TrialState.COMPLETE, verdict.value
        if not verdict.feasible:  # GP learns from complete trials only
            state, value = (TrialState.COMPLETE, 0.0) if kind == "gp" else (TrialState.PRUNED, None)
        if trial is None:
            study.add_trial(
                create_trial(
                    params=encoding.params(config), distributions=encoding.distributions, value=value, state=state,
                    constraints=dict(verdict.constraints), user_attrs=seen,
                )
            )  # fmt: skip
        else:
            for constraint, violation in verdict.constraints.items():
                trial.set_constraint(constraint, violation)
            for key, attribute in seen.items():
                trial.set_user_attr(key, attribute)
            study.tell(trial, value, state=state)
        trial = study.ask(encoding.distributions)
        proposal = encoding.config(trial.params)


def answered(task: Task, surface: Surface, seed: int) -> Answer:
    """One search by the real tuner, which stops, confirms and recommends as it does on a machine."""
    launcher, watcher = ReplayLauncher(surface), _Watcher()
    with tempfile.TemporaryDirectory() as place:
        settings = task.coarse(Path(place, "study"), seed=seed)
        recommendation = search(settings, launcher, watcher, launcher.clock, pause=lambda seconds: None)
    verdicts = [judge(trial.result, surface.request) for trial in watcher.trials]
    searched = sum(trial.purpose in SEARCH_PURPOSES for trial in watcher.trials)
    rate = surface.rates[Config(values=recommendation.params)] or 0.0
    return Answer(
        searched=searched,
        confirmed=len(verdicts) - searched,
        out_of_memory=sum(verdict.constraints["memory"] > 0 for verdict in verdicts),
        share=rate / surface.best[1],
    )


class _Watcher(SilentReporter):
    """Keeps the probes of a search."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []

    def probed(self, trial: Trial, verdict: Verdict, best_so_far: bool) -> None:
        """One more."""
        self.trials.append(trial)
