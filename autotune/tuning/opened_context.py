"""The opened context of a search: the knowledge of an open study, its sampler and its database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from autotune.answer.resumed_confirmation import interrupted
from autotune.context.budget import TimeBudget
from autotune.context.reporter import Reporter
from autotune.context.search_context import SearchContext
from autotune.context.time_guard import TimeGuard
from autotune.context.trades import Trades
from autotune.launch.base import Launcher
from autotune.machine.interference import ForeignCores
from autotune.memory.prediction import MemoryPrediction
from autotune.objectives import objective_of
from autotune.preparation.open_study import OpenStudy
from autotune.preparation.settings import Settings
from autotune.sampler.encoding import Encoding
from autotune.sampler.failing import FailingValues
from autotune.sampler.guard import Guard
from autotune.sampler.optuna import GuardedSampler, hardware, make_sampler
from autotune.sampler.structured import Knee, Knowledge
from autotune.study import disk
from autotune.study.answers import answered_probes
from autotune.study.history import History
from autotune.study.store import Store
from autotune.tuning.probing import learn

SEED_STEP = 100_003  # a prime, so that runs that continue after different numbers of probes have different seeds


@dataclass(frozen=True, kw_only=True)
class Outside:
    """The world outside of a search, besides its launcher; a test passes its own."""

    clock: Callable[[], float]  # seconds
    began: float  # seconds of `clock`: the time budget counts from then on
    pause: Callable[[float], None]  # sleeps for the given seconds
    foreign_cores: ForeignCores


@contextmanager
def opened_context(
    study: OpenStudy, history: History, settings: Settings, launcher: Launcher, reporter: Reporter, outside: Outside
) -> Iterator[SearchContext]:
    """Yield the context of a search with what the study knows; its database is open until the `with` block ends."""
    folder, request, space = study.folder, study.request, study.space
    guard, encoding = Guard(space), Encoding(space)
    for judged in history.judged:
        learn(guard, judged)
    if study.code_changed:
        guard.failing = FailingValues()  # what failed may have been mended
    for compared in history.loss_verdicts:
        if compared.excludes:
            guard.stability.refuse(compared.values)
    for config in disk.read_orphans(folder):
        guard.note_accident(config)
    memory_prediction = MemoryPrediction(space, history)
    trades = Trades(space, history, guard, memory_prediction)
    budget = TimeBudget(history, settings.time_budget_seconds, outside.clock, outside.began)
    time_guard = TimeGuard(trades, budget, history)
    objective = objective_of(request.goal)
    knee_share = objective.knee(request.goal)
    knee = None if knee_share is None else Knee(share=knee_share, least=request.baseline.global_batch_size())
    has_value_per_sample = objective.value_per_sample(request.goal) is not None
    value = history.value_per_sample if has_value_per_sample else None
    seed = settings.seed * SEED_STEP + history.count_before
    confirmation, ablation = interrupted(history.judged, answered_probes(folder, request), request.baseline)
    knowledge = Knowledge(
        shape_run=memory_prediction.of, value_per_sample=value, probe_duration=lambda: history.times.probe_duration,
        compiling_seconds=lambda config: history.times.compiling_seconds(config), baseline=request.baseline, knee=knee,
    )  # fmt: skip
    machine = hardware(request.environment)
    sampler = make_sampler(settings.sampler, seed, encoding, time_guard, machine, knowledge)
    store = Store(folder, request, encoding, needs_complete=settings.sampler == "gp")
    try:
        yield SearchContext(
            settings=settings, folder=folder, request=request, space=space, launcher=launcher, reporter=reporter,
            pause=outside.pause, foreign_cores=outside.foreign_cores, history=history, budget=budget, guard=guard,
            memory_prediction=memory_prediction, trades=trades, time_guard=time_guard, store=store,
            sampler=GuardedSampler(sampler, encoding, time_guard), interrupted_confirmation=confirmation,
            interrupted_ablation=ablation, code_changed=study.code_changed,
        )  # fmt: skip
    finally:
        store.close()
