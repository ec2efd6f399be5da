"""All that a stage of a search may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.core.records import StudyRequest
from autotune.launch.base import Launcher
from autotune.memory.prediction import MemoryPrediction
from autotune.objectives import objective_of
from autotune.objectives.base import Objective
from autotune.sampler.guard import Guard
from autotune.sampler.space import SearchSpace
from autotune.study.history import History
from autotune.tuning.budget import TimeBudget
from autotune.tuning.open_study import OpenStudy
from autotune.tuning.reporter import Reporter
from autotune.tuning.resumed_confirmation import ResumedConfirmation
from autotune.tuning.settings import Settings
from autotune.tuning.trades import Trades

if TYPE_CHECKING:  # these import Optuna, and pages and exports use rules of stages without it
    from autotune.sampler.optuna import GuardedSampler
    from autotune.study.store import Store


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a search is given from outside: who runs its probes, who is told, and the time."""

    launcher: Launcher
    reporter: Reporter
    clock: Callable[[], float]
    pause: Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class SearchContext:
    """One run of a search on an open study: what is asked, what is known, and what measures more."""

    settings: Settings
    study: OpenStudy
    surroundings: Surroundings
    history: History
    budget: TimeBudget
    guard: Guard  # refuses what was probed, and what cannot fit
    memory: MemoryPrediction
    trades: Trades  # refuses what the guard refuses, and what cannot win
    store: Store
    sampler: GuardedSampler
    resumed: ResumedConfirmation  # a confirmation that was interrupted; false: there is none

    @property
    def folder(self) -> Path:
        """The folder of the study."""
        return self.study.folder

    @property
    def request(self) -> StudyRequest:
        """What the study was asked."""
        return self.study.request

    @property
    def space(self) -> SearchSpace:
        """The configurations to choose from."""
        return self.study.space

    @property
    def objective(self) -> Objective:
        """What is maximised."""
        return objective_of(self.request.goal)

    @property
    def launcher(self) -> Launcher:
        """The launcher, which runs probes."""
        return self.surroundings.launcher

    @property
    def reporter(self) -> Reporter:
        """The reporter of this search."""
        return self.surroundings.reporter
