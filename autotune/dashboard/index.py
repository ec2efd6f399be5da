"""The list of studies: the result of each, its hardware, when, and whether a search is running."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.core.records import Environment
from autotune.dashboard.reading import read_kept, read_view
from autotune.errors import AutotuneError
from autotune.report.changes import change_phrase, changes_of
from autotune.report.live import live
from autotune.report.phrases import interval
from autotune.report.templates import Served, render_template
from autotune.study import disk
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the list; a study that cannot be read has a `problem`, one with best.json alone has no page."""

    name: str
    has_page: bool = False
    problem: str = ""
    running: bool = False
    probes: int = 0
    moment: str = ""  # of the answer, else of the beginning: UTC, ISO 8601
    environment: Environment | None = None
    best: Recommendation | None = None
    doing: str = ""  # of a running search

    @property
    def tuned(self) -> list[str]:
        """The changes of the answer: `precision fp32 → bf16`, `layout nchw → nhwc`."""
        return [change_phrase(one) for one in changes_of(self.best, None) if one.kept] if self.best else []

    @property
    def interval(self) -> str:
        """The interval of the speed-up, if the answer is not the baseline itself."""
        return interval(self.best) if self.best and self.best.params != self.best.baseline else ""

    @property
    def state(self) -> str:
        """The state of the study in words."""
        if self.problem:
            return self.problem
        if self.running:
            return f"running now: {self.doing}" if self.doing else "running now"
        if self.best is None:
            return "no recommendation"
        if self.best.params == self.best.baseline:
            return "keep the baseline"
        return "finished" if self.has_page else "only its best.json was kept"


def render_index(folders: Sequence[Path], served: Served) -> str:
    """Return the page of the list: running studies first, then the newest, each linked by its folder's name."""
    entries = sorted((_entry(folder) for folder in folders), key=lambda it: (it.running, it.moment), reverse=True)
    return render_template(
        "index.html",
        served=served,
        entries=entries,
        can_compare=sum(entry.has_page for entry in entries) > 1,
    )


def _entry(folder: Path) -> Entry:
    try:
        if not (folder / disk.STUDY).is_file():
            best = read_kept(folder)
            if best is None:
                return Entry(name=folder.name)
            environment, moment = best.environment, best.measured_at
            return Entry(name=folder.name, probes=best.probes, moment=moment, environment=environment, best=best)
        view = read_view(folder)
    except (AutotuneError, OSError) as error:
        return Entry(name=folder.name, problem=str(error))
    except Exception as error:  # an unexpected error in one study may not remove the others from the list
        logger.exception("%s cannot be shown", folder)
        return Entry(name=folder.name, problem=f"It cannot be shown: {type(error).__name__}: {error}")
    best = view.recommendation
    return Entry(
        name=folder.name,
        has_page=True,
        running=view.running,
        probes=len(view.trials),
        moment=best.measured_at if best else view.request.created_at,
        environment=view.request.environment,
        best=best,
        doing=_doing(view) if view.running else "",
    )


def _doing(view: StudyView) -> str:
    """Return `Explore, best so far 2.10×`; once there is an answer, the stage alone."""
    now = live(view)
    stage = next(one.name for one in now.stages if one.is_now)
    return f"{stage}, best so far {now.factor}" if now.factor and not view.recommendation else stage
