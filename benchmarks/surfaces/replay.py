"""A launcher that replays a recorded surface: what a probe showed once, it shows again, without a process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from autotune.core.requests import InspectRequest, ProbeRequest, Request, ResultT
from autotune.core.results import Failure, Inspection, Outcome, Result
from autotune.launch.base import REQUEST, RESULT
from autotune.launch.files import open_log, store
from autotune.memory.records import ShapeRunRequest
from benchmarks.surfaces.surface import Surface

UNKNOWN = Failure(phase="start", message="this configuration was not recorded", evidence="replayed")
SILENT = Failure(phase="start", message="a recorded surface knows nothing of this", evidence="replayed")


class ReplayLauncher:
    """A launcher without processes: every probe of a configuration answers with the one result that was recorded.

    Only probes, the inspection and, where memory ran out, a shape run were recorded. All else that is asked for fails,
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

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        """Answer with what was recorded; see `Launcher`."""
        result = cast("ResultT", self._recorded(request)) or request.failed(Outcome.CRASHED, SILENT)
        if not result.started_at and not isinstance(request, InspectRequest):
            result = replace(result, started_at=self._surface.recorded_at)
        with self._lock:
            self._elapsed_seconds += result.elapsed_seconds
        store(folder, REQUEST, request)
        with open_log(folder) as log:
            log.write(f"replayed from the surface of {self._surface.task}\n".encode())
        store(folder, RESULT, result)
        return result

    def _recorded(self, request: Request[Any]) -> Result | None:
        """None: nothing was recorded of it. A configuration that is not on the surface is not runnable."""
        study = self._surface.request
        if isinstance(request, ProbeRequest):
            return self._results.get(request.config) or request.failed(Outcome.INVALID_CONFIG, UNKNOWN)
        if isinstance(request, InspectRequest):
            return Inspection(environment=study.environment, facts=study.facts if request.target else None)
        if isinstance(request, ShapeRunRequest):
            return self._surface.shape_run  # of the whole space, whatever part of it is asked for
        return None
