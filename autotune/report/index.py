"""The list of studies: what each came to, on which hardware, when, and whether a search is at work on it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autotune.core.records import Environment
from autotune.errors import AutotuneError
from autotune.report.templates import Served, render_template
from autotune.study import layout as disk
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView

logger = logging.getLogger(__name__)


class Reads(Protocol):
    """How studies are read: anew, or as far as they changed."""

    def view(self, folder: Path) -> StudyView:
        """The whole study."""

    def kept(self, folder: Path) -> Recommendation | None:
        """The recommendation alone."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the list; a study that cannot be read has a `problem`, one of best.json alone no page of its own."""

    name: str
    has_page: bool = False
    problem: str = ""
    running: bool = False
    probes: int = 0
    date: str = ""  # of the answer, else of the beginning
    environment: Environment | None = None
    best: Recommendation | None = None

    @property
    def state(self) -> str:
        """The state of the study in words."""
        if self.problem:
            return self.problem
        if self.running:
            return "running now"
        if self.best is None:
            return "no recommendation"
        return "finished" if self.has_page else "only its best.json was kept"


def render_index(folders: Sequence[Path], reader: Reads, served: Served) -> str:
    """The page of the list, each study linked by its folder's name."""
    entries = [entry(folder, reader) for folder in folders]
    return render_template(
        "index.html",
        served=served,
        scripted=False,
        entries=entries,
        comparable=[e.name for e in entries if e.has_page],
    )


def entry(folder: Path, reader: Reads) -> Entry:
    """What the list says of one study."""
    try:
        if not (folder / disk.STUDY).is_file():
            best = reader.kept(folder)
            if best is None:
                return Entry(name=folder.name)
            environment, date = best.environment, best.measured_at
            return Entry(name=folder.name, probes=best.probes, date=date[:10], environment=environment, best=best)
        view = reader.view(folder)
    except (AutotuneError, OSError) as error:
        return Entry(name=folder.name, problem=str(error))
    except Exception as error:  # what no check foresaw, in one study, may not take the others from the list
        logger.exception("%s cannot be shown", folder)
        return Entry(name=folder.name, problem=f"It cannot be shown: {type(error).__name__}: {error}")
    best = view.recommendation
    return Entry(
        name=folder.name,
        has_page=True,
        running=view.running,
        probes=len(view.trials),
        date=(best.measured_at if best else view.request.created_at)[:10],
        environment=view.request.environment,
        best=best,
    )
