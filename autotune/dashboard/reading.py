"""Studies as last read: for a study that did not change, a poll only reads file times.

Links inside a study are never followed: a linked file counts as absent. Nothing is written, and no lock is kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from functools import lru_cache
from pathlib import Path, PurePosixPath

from autotune.core.results import Trial
from autotune.errors import StudyError
from autotune.launch.base import REQUEST, RESULT
from autotune.study import disk
from autotune.study.recommendation import Recommendation, read_best
from autotune.study.running import is_running
from autotune.study.view import StudyView, load_view

MOST_TRIALS = 10_000  # kept decoded, a few kB each
FINISHED = re.compile(rf"{disk.PROBES}/[0-9]+/{re.escape(RESULT)}")
Times = tuple[int, int, int]  # modification time in nanoseconds, size, inode: the last changes when a file is replaced


def stamp(folder: Path) -> str:
    """Return a text that changes when anything changes that a page shows of the study."""
    content = repr((is_running(folder), sorted(_records(folder).items())))
    return hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()[:20]


def read_view(folder: Path) -> StudyView:
    """Return the study as it is now. Raises `StudyNotFound` and `StudyError`."""
    for name in (disk.STUDY, disk.BEST):
        if (folder / name).is_symlink():
            raise StudyError(
                f"{name} of study {folder.name} is a link. Somebody probably keeps it elsewhere, and the dashboard "
                f"shows only what lies in the study. Copy the file into it."
            )
    finished = [(place, times) for place, times in _records(folder).items() if FINISHED.fullmatch(place)]
    probes = [(folder / PurePosixPath(place).parent, times) for place, times in finished]
    trials = (_trial(probe, times) for probe, times in probes if _times(str(probe / REQUEST)))
    return load_view(folder, tuple(sorted(trials, key=lambda trial: trial.number)))


def read_kept(folder: Path) -> Recommendation | None:
    """Return the recommendation of a study of which nothing else was kept; None without one. Raises `StudyError`."""
    best = folder / disk.BEST
    return read_best(best) if _times(str(best)) else None


@lru_cache(maxsize=MOST_TRIALS)
def _trial(probe: Path, _times: Times) -> Trial:
    return disk.read_trial(probe)


def open_regular(path: Path) -> int | None:
    """Return a descriptor of the regular file at `path` to read from; None for a link, a pipe, or nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether `path`, links followed, lies in `folder`."""
    return path.resolve().is_relative_to(folder.resolve())


def _records(folder: Path) -> dict[str, Times]:
    """Return the times of a study's JSON files by path: its own, those of its parts, and the results of each probe."""
    found: dict[str, Times | None] = {}
    for one in _entries(str(folder)):
        if one.name.endswith(".json"):
            found[one.name] = _times(one.path)
        if not one.is_dir(follow_symlinks=False):
            continue
        for inner in _entries(one.path):
            if inner.is_dir(follow_symlinks=False):
                found[f"{one.name}/{inner.name}/{RESULT}"] = _times(f"{inner.path}/{RESULT}")
            elif inner.name.endswith(".json"):
                found[f"{one.name}/{inner.name}"] = _times(inner.path)
    return {place: times for place, times in found.items() if times is not None}


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # deleted, or not readable by this user
        return []


def _times(path: str) -> Times | None:
    """Return times, size and inode of a regular file; None if there is none."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if stat.S_ISREG(found.st_mode) else None
