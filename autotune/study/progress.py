"""The state of a running search, for whoever looks at its study: `progress.json`, written by the search alone."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from autotune.core import codec
from autotune.core.records import Config, Record
from autotune.errors import StudyError

PROGRESS = "progress.json"


class Said(Record, frozen=True, kw_only=True):
    """A sentence of the search."""

    seconds: float  # since its beginning
    text: str


class RunningProbe(Record, frozen=True, kw_only=True):
    """The probe that is being measured."""

    number: int
    config: Config
    purpose: str
    began_at: str  # UTC, ISO 8601


class SearchProgress(Record, frozen=True, kw_only=True):
    """The progress of a search: what it does now, and what it has said; it stays when the search has ended."""

    began_at: str  # UTC, ISO 8601
    budget_seconds: float | None = None  # None: no limit of time
    purpose: str = ""  # of the probes of the present stage of the search
    running: RunningProbe | None = None  # None: between probes
    doing: str = ""  # between probes: the latest sentence since the last of them began
    said: tuple[Said, ...] = ()  # the oldest first


def read_progress(folder: Path) -> SearchProgress | None:
    """Return the progress of the search in `folder`; None where there is none, or where it is a link or damaged."""
    path = folder / PROGRESS
    if path.is_symlink() or not path.is_file():
        return None
    with suppress(StudyError, OSError):
        return codec.read(path, SearchProgress)
    return None
