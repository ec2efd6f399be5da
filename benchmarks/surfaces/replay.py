"""A launcher that answers from a recorded surface: what a probe showed once, it shows again, without a process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TypeVar

from autotune.forecast import DryRun
from autotune.gradients import NoiseScaleResult
from autotune.launch.base import REQUEST, RESULT
from autotune.launch.files import open_log, store
from autotune.records import Record
from autotune.requests import (
    DryRunRequest,
    InspectRequest,
    NoiseScaleRequest,
    ProbeRequest,
    StabilityRequest,
)
from autotune.results import Failure, Inspection, Outcome, ProbeResult, StabilityResult
from benchmarks.surfaces.surface import Surface

Silent = TypeVar("Silent", StabilityResult, NoiseScaleResult)
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

    def probe(self, request: ProbeRequest, folder: Path) -> ProbeResult:
        """Answer with what was recorded; a configuration that is not on the surface is not runnable. See `Launcher`."""
        unknown = Failure(phase="start", message="this configuration was not recorded", evidence="replayed")
        result = self._results.get(request.config, ProbeResult(outcome=Outcome.INVALID_CONFIG, failure=unknown))
        with self._lock:
            self._elapsed_seconds += result.elapsed_seconds
        self._leave(request, result, folder)
        return result

    def inspect(self, request: InspectRequest, folder: Path) -> Inspection:
        """The machine on which the surface was recorded, and the target as it was; see `Launcher`."""
        study = self._surface.request
        facts = study.facts if request.target else None
        inspection = Inspection(environment=study.environment, facts=facts)
        self._leave(request, inspection, folder)
        return inspection

    def compare(self, request: StabilityRequest, folder: Path) -> StabilityResult:
        """Fails: losses were not recorded."""
        return self._silent(request, StabilityResult, folder)

    def sample_gradients(self, request: NoiseScaleRequest, folder: Path) -> NoiseScaleResult:
        """Fails: gradients were not recorded."""
        return self._silent(request, NoiseScaleResult, folder)

    def dry_run(self, request: DryRunRequest, folder: Path) -> DryRun:
        """What was foretold of the whole space, whatever part of it is asked for; fails where that was not recorded."""
        silent = DryRun(outcome=Outcome.CRASHED, failure=SILENT, started_at=self._surface.recorded_at)
        result = self._surface.dry_run or silent
        with self._lock:
            self._elapsed_seconds += result.elapsed_seconds
        self._leave(request, result, folder)
        return result

    def _silent(self, request: Record, kind: type[Silent], folder: Path) -> Silent:
        result = kind(outcome=Outcome.CRASHED, failure=SILENT, started_at=self._surface.recorded_at)
        self._leave(request, result, folder)
        return result

    def _leave(self, request: Record, result: Record, folder: Path) -> None:
        store(folder, REQUEST, request)
        with open_log(folder) as log:
            log.write(f"replayed from the surface of {self._surface.task}\n".encode())
        store(folder, RESULT, result)
