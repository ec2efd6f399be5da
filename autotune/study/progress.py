"""The state of a running search, for readers of its study: `progress.json`, written only by the search."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from autotune.core import codec
from autotune.core.records import Config, Record
from autotune.errors import StudyError

PROGRESS = "progress.json"


class Said(Record, frozen=True, kw_only=True):
    """A sentence of the search, with the time at which it was said."""

    seconds: float  # since its beginning
    text: str


class RunningProbe(Record, frozen=True, kw_only=True):
    """The probe that is being measured, with its start."""

    number: int
    config: Config
    purpose: str
    began_at: str  # UTC, ISO 8601


class SearchProgress(Record, frozen=True, kw_only=True):
    """The progress of a search: its present work and its sentences; the file stays when the search has ended."""

    began_at: str  # UTC, ISO 8601
    budget_seconds: float | None = None  # None: no limit of time
    purpose: str = ""  # of the probes of the present stage of the search
    running: RunningProbe | None = None  # None: between probes
    doing: str = ""  # between probes: the latest sentence since the last of them began
    said: tuple[Said, ...] = ()  # the oldest first


def read_progress(folder: Path) -> SearchProgress | None:
    """Return the progress of the search in `folder`; None if there is none, or if the file is a link or damaged."""
    path = folder / PROGRESS
    if path.is_symlink() or not path.is_file():
        return None
    with suppress(StudyError, OSError):
        return codec.read(path, SearchProgress)
    return None
