"""The file of a study that lists its workers, for the page and the dashboard: the search does not read it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from autotune.core import codec
from autotune.core.records import Record
from autotune.errors import StudyError
from autotune.fleet.records import FleetWorker
from autotune.study import disk


class FleetState(Record, frozen=True, kw_only=True):
    """The workers that are there, in the order in which they came."""

    workers: tuple[FleetWorker, ...]


def write_workers(folder: Path, workers: tuple[FleetWorker, ...]) -> None:
    """Write the workers into a study that has begun; if the file cannot be written, the search goes on without it."""
    if (folder / disk.STUDY).is_file():
        with suppress(OSError):
            codec.write(folder / disk.FLEET, FleetState(workers=workers))


def read_workers(folder: Path) -> tuple[FleetWorker, ...]:
    """Return the workers of the search in `folder`; none where the file is missing, a link, or damaged."""
    path = folder / disk.FLEET
    if path.is_symlink() or not path.is_file():
        return ()
    with suppress(StudyError, OSError):
        return codec.read(path, FleetState).workers
    return ()
