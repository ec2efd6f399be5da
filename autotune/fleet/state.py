"""The file of a study that lists its workers, for the page and the dashboard: the search does not read it."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from autotune.core import codec
from autotune.core.records import Record
from autotune.errors import StudyError
from autotune.fleet.records import FleetWorker
from autotune.study import disk

_writing = threading.Lock()  # of the threads of a search: each reads the file, and then writes it


class FleetState(Record, frozen=True, kw_only=True):
    """The workers of a study: those that are there, in the order in which they came; then those that left."""

    workers: tuple[FleetWorker, ...]


def write_workers(folder: Path, workers: tuple[FleetWorker, ...]) -> None:
    """Write the workers that are there into a study that has begun, and keep those that have left, with their machines.

    If the file cannot be written, the search goes on without it.
    """
    if not (folder / disk.STUDY).is_file():
        return
    names = {one.name for one in workers}
    with _writing, suppress(OSError):
        gone = (one for one in read_workers(folder) if one.name not in names)
        left = (replace(one, has_left=True, job="", seconds=0.0) for one in gone)
        codec.write(folder / disk.FLEET, FleetState(workers=(*workers, *left)))


def read_workers(folder: Path) -> tuple[FleetWorker, ...]:
    """Return the workers of the search in `folder`; none where the file is missing, a link, or damaged."""
    path = folder / disk.FLEET
    if path.is_symlink() or not path.is_file():
        return ()
    with suppress(StudyError, OSError):
        return codec.read(path, FleetState).workers
    return ()
