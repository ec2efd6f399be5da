"""The seam between the search and whatever runs a probe."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from autotune.forecast import DryRun
from autotune.gradients import NoiseScaleResult
from autotune.requests import (
    DryRunRequest,
    InspectRequest,
    NoiseScaleRequest,
    ProbeRequest,
    StabilityRequest,
)
from autotune.results import Inspection, ProbeResult, StabilityResult

REQUEST = "request.json"
RESULT = "result.json"
LOG = "log.txt"


class Launcher(Protocol):
    """Runs one request in `folder`, and always comes back with a record.

    Whatever the probe does (runs out of memory, hangs, is killed), the answer is a result with an outcome, and no
    process is left behind; the same holds when `KeyboardInterrupt` passes through.
    `folder` must exist; afterwards it holds the request, the log and the result, and after an interrupt only the log:
    a request without a result means that the searching process died.
    Raises `EnvironmentUnfit` if the folder cannot be written (disk full, read-only).
    """

    def probe(self, request: ProbeRequest, folder: Path) -> ProbeResult:
        """Run one short training."""
        ...

    def compare(self, request: StabilityRequest, folder: Path) -> StabilityResult:
        """Run paired trainings, one after the other."""
        ...

    def sample_gradients(self, request: NoiseScaleRequest, folder: Path) -> NoiseScaleResult:
        """Run one training whose weights are held after a while, for the gradients of single micro-batches."""
        ...

    def dry_run(self, request: DryRunRequest, folder: Path) -> DryRun:
        """Run trainings without contents, for the memory that they would need."""
        ...

    def inspect(self, request: InspectRequest, folder: Path) -> Inspection:
        """Find out about device and target."""
        ...
