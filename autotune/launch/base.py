"""The seam between the search and whatever runs a probe."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from autotune.records import InspectRequest, ProbeRequest, StabilityRequest
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

    def inspect(self, request: InspectRequest, folder: Path) -> Inspection:
        """Find out about device and target."""
        ...
