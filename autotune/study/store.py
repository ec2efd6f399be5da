"""Optuna's store behind a study that is being searched. The only file that knows that store.

The probe folders are authoritative, the database is the sampler's copy of them. Optuna's study is kept in memory while
a search runs, and a trial is written to the database once, when it ends: writing each step takes two dozen
transactions. Differences between folders and database after a crash are resolved on opening: a result that was written
but not told is told, a trial that is still running in the database, as earlier versions left them, is told FAIL
(Optuna's TPE avoids running trials for ever), and a lost database is rebuilt.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import optuna
import sqlalchemy
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from autotune.core.records import SEARCH_PURPOSES, Config, StudyRequest
from autotune.core.results import ProbeResult, Trial, Verdict
from autotune.errors import AutotuneError, EnvironmentUnfit, StudyError
from autotune.objectives.verdict import headroom_for
from autotune.sampler.encoding import Encoding
from autotune.sampler.observation import observed
from autotune.sampler.optuna import GuardedSampler
from autotune.study import disk

BUSY_SECONDS = 30  # how long SQLite waits for another reader before it gives up
NUMBER = "probe"  # trial attribute: the number of the probe folder
PREDICTION = "prediction"  # trial attribute: a `Prediction` as JSON
NAME = "autotune"
BROKEN = (SQLAlchemyError, optuna.exceptions.StorageInternalError)
UNREADABLE = (*BROKEN, ValueError, LookupError, RuntimeError)  # undecodable text, unknown states, another schema


class Store:
    """Optuna's study, asked and told in configurations, verdicts and probe numbers."""

    def __init__(self, folder: Path, request: StudyRequest, encoding: Encoding, *, needs_complete: bool) -> None:
        """Open or create the database.

        `needs_complete`: the sampler learns from complete trials only (Optuna's GP), so infeasible ones are told as
        complete with the worst value, 0 samples/s, in addition to their violated constraint.
        """
        self._folder, self._request, self._encoding, self._needs_complete = folder, request, encoding, needs_complete
        self.promises: list[float | None] = []  # of this run's proposals, if the sampler predicted them
        self._open: dict[int, optuna.Trial] = {}
        self._storage: RDBStorage | None = None
        with self._reading():
            self._storage = _storage(folder / disk.DATABASE)
            self._kept = optuna.create_study(
                study_name=NAME, storage=self._storage, direction="maximize", load_if_exists=True
            )
            self.study = optuna.create_study(direction="maximize")
            self.study.add_trials(trial for trial in self.trials() if trial.state.is_finished())

    def reconcile(self, trials: tuple[Trial, ...], verdicts: dict[int, Verdict]) -> None:
        """Make the database agree with the probe folders."""
        by_number = {trial.number: trial for trial in trials}
        with self._reading():
            known = set()
            for frozen in self.trials():
                if frozen.state is TrialState.RUNNING:
                    self._kept.tell(frozen.number, state=TrialState.FAIL)  # if it has a result, that is added below
                elif frozen.state is not TrialState.FAIL:
                    known.add(frozen.user_attrs.get(NUMBER))
            learned = set()  # of an ablation's rounds only the first of each configuration
            for number, trial in by_number.items():
                if trial.purpose not in SEARCH_PURPOSES or trial.result.outcome.retried:
                    continue
                if number not in known and (trial.purpose != "ablation" or trial.config not in learned):
                    self.add(trial, verdicts[number])
                learned.add(trial.config)

    def ask(self, sampler: GuardedSampler, number: int) -> Config:
        """Return the next configuration to probe, to be told under `number`."""
        self.study.sampler = sampler
        trial = self.study.ask(self._encoding.distributions)
        trial.set_user_attr(NUMBER, number)
        self._open[number] = trial
        prediction = sampler.prediction
        if prediction is not None:
            trial.set_user_attr(PREDICTION, msgspec.to_builtins(prediction))
            self.promises.append(prediction.gain if prediction.most_gain is None else prediction.most_gain)
            disk.write_prediction(self._folder, number, prediction)
        return self._encoding.config(trial.params)

    def tell(
        self, number: int, verdict: Verdict, *, result: ProbeResult | None = None, final: int | None = None
    ) -> None:
        """Tell the verdict on a proposal: the constraints (once, all of them, in one order), then the state.

        `result`: the sampler learns more from it than the value. `final`: the number of the probe that decided, if the
        first one was repeated.
        """
        trial = self._open.pop(number)
        state, value = self._state(verdict)
        if final is not None:
            trial.set_user_attr(NUMBER, final)
        for name, violation in verdict.constraints.items():
            trial.set_constraint(name, violation)
        trial.set_user_attr("reason", verdict.why)
        for name, attribute in self._observed(result, verdict).items():
            trial.set_user_attr(name, attribute)
        self._keep(self.study.tell(trial, value, state=state))

    def abandon(self, number: int) -> None:
        """Tell the sampler that a probe was interrupted and has no result."""
        self._keep(self.study.tell(self._open.pop(number), state=TrialState.FAIL))

    def add(self, trial: Trial, verdict: Verdict) -> None:
        """Record a probe that was not asked for (the baseline, or one from before); ignored outside the space."""
        params = self._encoding.params(trial.config)
        if params is None:
            return
        state, value = self._state(verdict)
        attributes = {NUMBER: trial.number, "reason": verdict.why, **self._observed(trial.result, verdict)}
        made = create_trial(
            params=params,
            distributions=self._encoding.distributions,
            value=value,
            state=state,
            constraints=dict(verdict.constraints),
            user_attrs=attributes,
        )
        self.study.add_trial(made)
        self._keep(made)

    def trials(self) -> list[FrozenTrial]:
        """Return all trials in the database."""
        return self._kept.get_trials(deepcopy=False)

    def close(self) -> None:
        """Close the database file."""
        if self._storage is not None:
            self._storage.remove_session()
            self._storage.engine.dispose()

    def _keep(self, trial: FrozenTrial) -> None:
        with self._translated():
            self._kept.add_trial(trial)

    def _observed(self, result: ProbeResult | None, verdict: Verdict) -> dict[str, Any]:
        if result is None:
            return {}
        kept = headroom_for(result.measurement, self._request) if result.measurement else self._request.headroom_bytes
        return observed(result, verdict, self._request.memory_limit_bytes - kept).attributes()

    def _state(self, verdict: Verdict) -> tuple[TrialState, float | None]:
        if verdict.feasible:
            return TrialState.COMPLETE, verdict.value
        return (TrialState.COMPLETE, 0.0) if self._needs_complete else (TrialState.PRUNED, None)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Treat any error at the first read of the file as damage, and close the file, so that it can be moved."""
        try:
            with self._translated(UNREADABLE):
                yield
        except AutotuneError:
            self.close()
            raise

    @contextmanager
    def _translated(self, errors: tuple[type[Exception], ...] = BROKEN) -> Iterator[None]:
        """Raise database errors as errors of this package."""
        path = self._folder / disk.DATABASE
        try:
            yield
        except errors as error:
            text = (str(error.__cause__ or error).splitlines() or [type(error).__name__])[0]
            if any(word in text for word in ("disk is full", "readonly", "unable to open", "disk I/O")):
                raise EnvironmentUnfit(
                    f"{path} cannot be written: {text}. The disk is full, or the folder is read-only. Free some space "
                    f"or choose another place with --study; every finished probe is kept in {disk.PROBES}/."
                ) from error
            raise StudyError(
                f"{path} is damaged: {text}. Another program or a failing disk has probably written into it. Every "
                f"finished probe is kept in {self._folder / disk.PROBES}: move {path.name} away and run the same "
                f"command again, it is rebuilt from them."
            ) from error


def _storage(path: Path) -> RDBStorage:
    """Open SQLite in WAL mode. An ask and tell takes 9 ms; 30 `kill -9` corrupted nothing (docs/notes/search.md 7).

    The mode is set before the tables are made: each of them would wait for the disk otherwise.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    place = str(path.resolve())

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(place, timeout=BUSY_SECONDS, check_same_thread=False)  # the pool hands it around
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    url = sqlalchemy.URL.create("sqlite", database=place).render_as_string()
    return RDBStorage(url, engine_kwargs={"creator": connect})
