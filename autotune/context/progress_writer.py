"""A reporter that also stores the reports in the study, for the page that follows the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from autotune.context.reporter import Reporter
from autotune.core import codec
from autotune.core.records import Config, Purpose
from autotune.core.results import Trial, Verdict
from autotune.knobs.base import Knob
from autotune.study.progress import PROGRESS, RunningProbe, Said, SearchProgress
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView

MOST_SAID = 200  # sentences; a long search repeats itself


class ProgressWriter:
    """Passes everything on to `reporter`, and writes the state of the search in `folder` after each event.

    If a state cannot be written, there is none: the search goes on.
    """

    def __init__(
        self, reporter: Reporter, folder: Path, budget_seconds: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._reporter, self._folder, self._clock = reporter, folder, clock
        self._began = clock()
        self._progress = SearchProgress(began_at=_now(), budget_seconds=budget_seconds)

    def opening(self, lines: Sequence[str], knobs: Sequence[Knob]) -> None:
        """Begin a new state: an earlier run of the search has ended."""
        self._keep(self._progress)
        self._reporter.opening(lines, knobs)

    def phase(self, purpose: Purpose) -> None:
        """Store the stage of the search that begins."""
        self._keep(replace(self._progress, purpose=purpose))
        self._reporter.phase(purpose)

    def probing(self, number: int, config: Config, purpose: str) -> None:
        """Store the probe that starts."""
        running = RunningProbe(number=number, config=config, purpose=purpose, began_at=_now())
        self._keep(replace(self._progress, running=running, doing=""))
        self._reporter.probing(number, config, purpose)

    def probed(self, trial: Trial, verdict: Verdict, best_so_far: bool) -> None:
        """Store that no probe runs; the trial itself is in the study."""
        self._keep(replace(self._progress, running=None))
        self._reporter.probed(trial, verdict, best_so_far)

    def note(self, text: str) -> None:
        """Store the sentence."""
        self._say(text)
        self._reporter.note(text)

    def detail(self, text: str) -> None:
        """Store the sentence."""
        self._say(text)
        self._reporter.detail(text)

    def finished(self, recommendation: Recommendation) -> None:
        """Store that no probe runs."""
        self._keep(replace(self._progress, running=None))
        self._reporter.finished(recommendation)

    def interrupted(self, view: StudyView, resume_command: str) -> None:
        """Store that no probe runs."""
        self._keep(replace(self._progress, running=None))
        self._reporter.interrupted(view, resume_command)

    def _say(self, text: str) -> None:
        said = Said(seconds=round(self._clock() - self._began, 1), text=text)
        self._keep(replace(self._progress, said=(*self._progress.said, said)[-MOST_SAID:], doing=text))

    def _keep(self, progress: SearchProgress) -> None:
        self._progress = progress
        with suppress(OSError):
            codec.write(self._folder / PROGRESS, progress)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
