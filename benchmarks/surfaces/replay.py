"""A launcher that answers from a recorded surface: what a probe showed once, it shows again, without a process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from autotune.core.requests import Answered, DryRunRequest, InspectRequest, ProbeRequest, Request
from autotune.core.results import Answer, Failure, Inspection, Outcome
from autotune.launch.base import REQUEST, RESULT
from autotune.launch.files import open_log, store
from benchmarks.surfaces.surface import Surface

UNKNOWN = Failure(phase="start", message="this configuration was not recorded", evidence="replayed")
SILENT = Failure(phase="start", message="a recorded surface knows nothing of this", evidence="replayed")


class ReplayLauncher:
    """A launcher without processes: every probe of a configuration answers with the one result that was recorded.

    Only probes, the inspection and, where memory ran out, a dry run were recorded. All else that is asked for fails,
    as if it had crashed: a search does without (`stability="off"`). Time is the recorded one: `clock` is how much of it
    all probes so far have taken, and goes where `time.monotonic` is injected.
    """

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._results = {cell.config: cell.result for cell in surface.cells}
        self._elapsed_seconds = 0.0
        self._lock = threading.Lock()

    def clock(self) -> float:
        """Recorded seconds since the start."""
        return self._elapsed_seconds

    def run(self, request: Request[Answered], folder: Path) -> Answered:
        """Answer with what was recorded; see `Launcher`."""
        answer = cast("Answered", self._recorded(request)) or request.failed(Outcome.CRASHED, SILENT)
        if not answer.started_at and not isinstance(request, InspectRequest):
            answer = replace(answer, started_at=self._surface.recorded_at)
        with self._lock:
            self._elapsed_seconds += answer.elapsed_seconds
        store(folder, REQUEST, request)
        with open_log(folder) as log:
            log.write(f"replayed from the surface of {self._surface.task}\n".encode())
        store(folder, RESULT, answer)
        return answer

    def _recorded(self, request: Request[Any]) -> Answer | None:
        """None: nothing was recorded that answers it. A configuration that is not on the surface is not runnable."""
        study = self._surface.request
        if isinstance(request, ProbeRequest):
            return self._results.get(request.config) or request.failed(Outcome.INVALID_CONFIG, UNKNOWN)
        if isinstance(request, InspectRequest):
            return Inspection(environment=study.environment, facts=study.facts if request.target else None)
        if isinstance(request, DryRunRequest):
            return self._surface.dry_run  # of the whole space, whatever part of it is asked for
        return None
