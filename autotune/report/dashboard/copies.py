"""The databases of studies copied into one store in memory, where nothing that is done to them reaches the studies."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

import optuna
from optuna.exceptions import OptunaError
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.trial import FrozenTrial
from sqlalchemy.exc import SQLAlchemyError

from autotune import folder as disk
from autotune.harmless import plain

logger = logging.getLogger(__name__)

BUSY_SECONDS = 5.0  # how long the copy waits for the search; a commit takes milliseconds
# Not a database, not Optuna's, another schema, states that nobody knows: such a study has no raw trials to show.
UNREADABLE = (sqlite3.Error, SQLAlchemyError, OptunaError, OSError, ValueError, LookupError, RuntimeError)
Stamp = tuple[int, ...]


class Copies:
    """The trials of several studies, each named by its folder; a database is copied again when it has changed.

    A study keeps its number for as long as this object lives, so that an address keeps its meaning.
    """

    def __init__(self) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._trials: dict[Path, tuple[Stamp, list[FrozenTrial]]] = {}  # in the order of first sight

    def update(self, folders: Sequence[Path]) -> bool:
        """Copy what is new; whether anything was."""
        changed = False
        for folder in folders:
            stamp = _stamp(folder / disk.DATABASE)
            if self._trials.get(folder, (None,))[0] == stamp:
                continue
            try:
                trials = _trials(folder / disk.DATABASE) if stamp else []
            except UNREADABLE as error:
                logger.warning("the database of %s cannot be copied: %s", plain(str(folder)), plain(str(error)))
                trials = []
            self._trials[folder] = (stamp, trials)
            changed = True
        return changed

    def number(self, folder: Path) -> int | None:
        """Under which number the store knows the study."""
        return list(self._trials).index(folder) if folder in self._trials else None

    def store(self) -> InMemoryStorage:
        """All of them, in a store of their own."""
        store = InMemoryStorage()
        for folder, (_, trials) in self._trials.items():
            study = optuna.create_study(storage=store, study_name=folder.name, direction="maximize")
            study.add_trials(trials)
        return store


def _stamp(database: Path) -> Stamp:
    """Times and sizes of the database and of what is not yet merged into it; empty if there is none, or a link."""
    stamp: list[int] = []
    for path in (database, _log_of(database)):
        if path.is_symlink():
            return ()
        if path.is_file():
            found = path.stat()
            stamp += [found.st_mtime_ns, found.st_size]
    return tuple(stamp)


def _log_of(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def _trials(database: Path) -> list[FrozenTrial]:
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / disk.DATABASE
        _copy(database, copy)
        storage = RDBStorage(f"sqlite:///{copy}", skip_table_creation=True)
        try:
            (study,) = storage.get_all_studies()
            return storage.get_all_trials(study._study_id, deepcopy=False)
        finally:
            storage.remove_session()
            storage.engine.dispose()


def _copy(database: Path, copy: Path) -> None:
    """A consistent copy, without a trace beside the original.

    Opening a database whose write-ahead log is gone, even to read it, makes that log anew. Nobody writes to such a
    one, so it is opened as immutable; should a search begin meanwhile, the log appears, and the copy is made again.
    """
    for mode in ("immutable=1", "mode=ro"):
        if mode == "immutable=1" and _log_of(database).exists():
            continue
        address = f"{database.resolve().as_uri()}?{mode}"
        with (
            contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as source,
            contextlib.closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
        if mode == "mode=ro" or not _log_of(database).exists():
            return
