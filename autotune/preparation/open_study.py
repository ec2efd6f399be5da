"""A study, opened for one search: new or resumed, locked, and never mixed with what is not comparable."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from autotune.core.notices import Notice
from autotune.core.records import StudyRequest
from autotune.core.results import Inspection
from autotune.errors import EnvironmentUnfit, StudyError, StudyNotFound, TargetError, UsageError
from autotune.launch.base import RESULT, Launcher
from autotune.launch.files import store
from autotune.preparation.place import check_place, place_aside
from autotune.preparation.prepare import inspect, settle
from autotune.preparation.ranks import asked_ranks
from autotune.preparation.rebuild import rebuild
from autotune.preparation.settings import Settings, goal_names
from autotune.sampler.space import SearchSpace
from autotune.sentences import first_few
from autotune.study import disk
from autotune.study.history import History
from autotune.study.identity import MOST_DIFFERENCES, as_begun, code_changed, difference_of_target, differences_of
from autotune.study.lock import Lock
from autotune.targets.source import is_same
from autotune.units import counted


@dataclass(frozen=True, kw_only=True)
class OpenStudy:
    """A study that this process alone searches, with study.json in place."""

    folder: Path
    request: StudyRequest
    space: SearchSpace
    is_resumed: bool  # whether an earlier search is continued
    inspection_seconds: float
    note: str = ""  # what was rebuilt of a damaged study, or where an earlier one was moved
    code_changed: Notice | None = None  # since the study began


@contextmanager
def open_study(settings: Settings, launcher: Launcher) -> Iterator[OpenStudy]:
    """Inspect the target; yield its study, new or resumed, and hold its lock until the `with` block ends.

    With mode `fresh` an earlier study is moved aside, never deleted. A new study that records nothing is removed again.
    Raises `StudyError` if the study there was made for another request or lost its study.json, `StudyNotFound` if
    `resume` finds nothing, and what `inspect` and `settle` raise.
    """
    ranks = asked_ranks(settings)
    check_place(settings)
    note = rebuild(settings)
    begun, folder = check_resumable(settings.folder, settings.mode), settings.folder
    if begun is not None:
        _refuse(folder, difference_of_target(begun, settings.target))  # the inspection of another one may take long
    with _locked(folder) as lock, _tidied(folder, begun):
        disk.sweep(folder)
        environment, facts, seconds = inspect(
            settings.target, ranks.device, settings.seed, folder / disk.INSPECT, launcher,
            memory_limit=settings.memory_limit, declared=settings.declared, ranks=ranks.count,
        )  # fmt: skip
        if begun is not None:
            environment, facts = as_begun(begun, environment, facts)
        request, space = settle(settings, environment, facts)
        aside = place_aside(folder) if settings.mode == "fresh" else None
        earlier = begin(folder, request, settings.mode, lock)
        note = f"The study that lay in {folder} was moved to {aside}." if aside else note
        yield OpenStudy(
            folder=folder, request=request, space=space, is_resumed=earlier is not None, inspection_seconds=seconds,
            note=note, code_changed=code_changed(earlier, request) if earlier else None,
        )  # fmt: skip


@contextmanager
def _locked(folder: Path) -> Iterator[Lock]:
    """Hold the lock of the study; if that fails, remove what was made for it."""
    try:
        lock = Lock(folder)
    except (KeyboardInterrupt, EnvironmentUnfit):
        disk.clear_away(folder)
        raise
    with lock:
        yield lock


@contextmanager
def _tidied(folder: Path, begun: StudyRequest | None) -> Iterator[None]:
    """Remove compiled code afterwards, and a study that recorded nothing. `begun`: an earlier search's request."""
    try:
        yield
    except (KeyboardInterrupt, UsageError, EnvironmentUnfit):
        disk.take_compiled_away(folder)
        disk.clear_away(folder)  # but not after a `TargetError`, which names its log
        raise
    except TargetError:
        if begun is not None:
            _keep_inspection(folder, begun)
        _ignore(folder)  # its log stays
        raise
    finally:
        disk.take_compiled_away(folder)


def begin(
    folder: Path, request: StudyRequest, mode: Literal["auto", "resume", "fresh"], lock: Lock
) -> StudyRequest | None:
    """Write study.json into `folder`, which `lock` holds; return that of the earlier search that is continued, if any.

    With `fresh` an earlier study is moved aside, and the lock holds both. Raises what `open_study` raises.
    """
    if (earlier := check_resumable(folder, mode)) is not None:
        try:
            check_alike(folder, earlier, request)
        except StudyError:
            _keep_inspection(folder, earlier)  # the study keeps its own
            raise
        if earlier.target_digest != request.target_digest and not _is_anything_reused(folder, earlier):
            earlier = replace(earlier, target_digest=request.target_digest)  # all that counts will be of today's code
            store(folder, disk.STUDY, earlier)
        return earlier
    if (aside := place_aside(folder)) is not None:
        _begin_anew(folder, aside, lock)
    _ignore(folder)
    store(folder, disk.STUDY, request)
    return None


def _is_anything_reused(folder: Path, earlier: StudyRequest) -> bool:
    """Return whether a search that goes on uses an answer or a measurement of the study. Raises `StudyError`."""
    kept = (folder / disk.BEST).exists() or disk.read_orphans(folder)
    return bool(kept) or not History.read(folder, earlier).is_empty


def _ignore(folder: Path) -> None:
    """Make git keep best.json alone; not in a folder that is the user's own, where this would hide their work."""
    try:
        if disk.is_ours(folder):
            (folder / disk.IGNORE).write_text(disk.IGNORED)
    except OSError as error:
        raise disk.unwritable(folder, error) from error


def preview(
    settings: Settings, launcher: Launcher, *, memory_limit: str | None = None, lasts: bool = False
) -> tuple[StudyRequest, SearchSpace, float]:
    """Return the request of a search with these settings, its space, and the seconds of the inspection.

    Nothing is written that stays. Raises `UsageError` if the target holds more than `memory_limit` before it trains;
    the default is that of the settings. With `lasts` also `TargetError` if a command trains too short for a probe.
    """
    ranks = asked_ranks(settings)
    with tempfile.TemporaryDirectory(prefix="autotune-") as place:
        environment, facts, seconds = inspect(
            settings.target, ranks.device, settings.seed, Path(place), launcher, keeps_log=False, lasts=lasts,
            memory_limit=memory_limit or settings.memory_limit, declared=settings.declared, ranks=ranks.count,
        )  # fmt: skip
    with suppress(StudyError):  # a search that continues it reports what is wrong with it
        begun = check_resumable(settings.folder, settings.mode)
        if begun is not None and is_same(begun.target, begun.target_digest, settings.target):
            environment, facts = as_begun(begun, environment, facts)
    return *settle(settings, environment, facts), seconds


def check_alike(folder: Path, earlier: StudyRequest, request: StudyRequest) -> None:
    """Raise `StudyError` if the study there, with the request `earlier`, is not comparable with `request`."""
    _refuse(folder, differences_of(earlier, request, goal_names()))


def _refuse(folder: Path, differences: Sequence[str]) -> None:
    if differences:
        told = first_few(differences, MOST_DIFFERENCES, "; ")
        raise StudyError(
            f"{folder} holds a study that does not fit this search: {told}. Only results of the same machine, training "
            f"and settings can be compared. Use --fresh (the old study is moved aside) or another --study."
        )


def check_resumable(folder: Path, mode: Literal["auto", "resume", "fresh"]) -> StudyRequest | None:
    """Return the request of the study that would be continued; None if a new one would begin.

    Raises what `open_study` raises for a damaged or missing study.json. This is also asked before anything is made or
    inspected.
    """
    if mode == "fresh":
        return None
    if (folder / disk.STUDY).is_file():
        return disk.read_request(folder)
    if (folder / disk.PROBES).is_dir():
        raise StudyError(
            f"{folder} holds {counted(len(disk.read_asked(folder)), 'probe')} but no {disk.STUDY}, and no inspection "
            f"to rebuild it from. They were probably deleted, so the machine that ran the probes is not known. "
            f"Use --fresh (the folder is moved aside) or another --study."
        )
    if mode == "resume":
        raise StudyNotFound(
            f"{folder} holds no study that could be resumed. The name is probably another one. "
            f"Leave --resume out to begin it."
        )
    return None


def _begin_anew(folder: Path, aside: Path, lock: Lock) -> None:
    """Move the study to `aside`, except for the inspection of the new one, whose folder is made and locked beforehand.

    So no process finds a folder without a lock. A process that makes one between the two renames keeps it.
    """
    disk.take_compiled_away(folder)
    new = disk.make(folder.with_name(f".{folder.name}.new-{os.getpid()}"))
    try:
        lock.add(new)
        if (folder / disk.INSPECT).exists():
            (folder / disk.INSPECT).rename(new / disk.INSPECT)
        folder.rename(aside)
        new.rename(folder)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        if aside.exists() and folder.exists():
            raise StudyError(
                f"Another search made {folder} while the study in it was moved to {aside}. Both were probably begun at "
                f"once. Wait for the other one, or choose another place with --study."
            ) from error
        raise disk.unwritable(folder, error) from error
    with suppress(StudyError, FileNotFoundError):  # a damaged or lost one is the reason to begin anew
        _keep_inspection(aside, disk.read_request(aside))


def _keep_inspection(folder: Path, own: StudyRequest) -> None:
    """Write down what was found of target and machine when the study began."""
    found = Inspection(environment=own.environment, facts=own.facts)
    store(disk.make(folder / disk.INSPECT), RESULT, found)
