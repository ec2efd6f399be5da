"""The context of a search: everything that a stage may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.answer.resumed_confirmation import ResumedConfirmation
from autotune.context.budget import TimeBudget
from autotune.context.reporter import Reporter
from autotune.context.time_guard import TimeGuard
from autotune.context.trades import Trades
from autotune.core.notices import Notice
from autotune.core.records import Config, StudyRequest
from autotune.core.requests import Request, ResultT
from autotune.core.results import Outcome
from autotune.fleet.base import Fleet
from autotune.launch.base import LOG, Launcher
from autotune.machine.interference import ForeignCores
from autotune.memory.prediction import MemoryPrediction
from autotune.objectives import objective_of
from autotune.objectives.base import Objective
from autotune.preparation.prepare import error_of_failure
from autotune.preparation.settings import Settings
from autotune.sampler.guard import Guard
from autotune.sampler.prediction import Prediction
from autotune.sampler.space import SearchSpace
from autotune.study import disk
from autotune.study.history import History

if TYPE_CHECKING:  # these import Optuna, and pages and exports use rules of stages without it
    from autotune.sampler.optuna import GuardedSampler
    from autotune.study.store import Store


@dataclass(frozen=True, kw_only=True)
class SearchContext:
    """One run of a search on an open study: what is asked, what is known, and what measures more."""

    settings: Settings
    folder: Path  # of the study
    request: StudyRequest
    space: SearchSpace
    launcher: Launcher
    reporter: Reporter
    pause: Callable[[float], None]  # sleeps for the given seconds
    foreign_cores: ForeignCores  # cores that others keep busy while `pause` sleeps
    history: History
    budget: TimeBudget
    guard: Guard  # refuses what was probed, and what cannot fit in memory
    memory_prediction: MemoryPrediction
    trades: Trades  # refuses what the guard refuses, and what cannot be the best
    time_guard: TimeGuard  # refuses what the trades refuse, and what there is no time for
    store: Store
    sampler: GuardedSampler
    interrupted_confirmation: ResumedConfirmation  # to be continued; false if there is none
    interrupted_ablation: ResumedConfirmation  # the same for the ablation
    code_changed: Notice | None = None  # the warning that the target's code has changed since the study began
    advised_minutes: int = 0  # the time budget that was named as enough; 0 if none was

    @property
    def objective(self) -> Objective:
        """The objective, whose score is maximised."""
        return objective_of(self.request.goal)

    @property
    def fleet(self) -> Fleet | None:
        """The machines that measure; None if this one does."""
        return self.launcher if isinstance(self.launcher, Fleet) else None

    def expected(self, configs: Sequence[Config]) -> list[tuple[Config, Prediction]]:
        """Return what the sampler's model predicts for these; nothing if the sampler has none."""
        return self.sampler.expected(self.store.study, configs)

    def run(self, asked: Request[ResultT], place: Path | None = None) -> ResultT:
        """Return the result of a request, stored in `place`: a new folder of the study if none is given.

        Raises `EnvironmentUnfit` for a fault of the machine.
        """
        place = place or self._place_of(asked)
        answer = self.launcher.run(asked, place)
        if answer.outcome is Outcome.ENVIRONMENT:
            assert answer.failure is not None, "only OK has none"
            raise error_of_failure(answer.outcome, answer.failure, place / LOG)
        return answer

    def run_dispensable(self, asked: Request[ResultT]) -> ResultT:
        """Return the result of a request that the search can do without, also after a fault of the machine.

        Raises `EnvironmentUnfit` or `StudyError` if nothing can be launched or stored.
        """
        return self.launcher.run(asked, self._place_of(asked))

    def _place_of(self, asked: Request[ResultT]) -> Path:
        return disk.new_attempt(self.folder, type(asked))[1]
