"""The seam between the search and whatever runs a probe."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from autotune.records import InspectRequest, ProbeRequest
from autotune.results import Inspection, ProbeResult

REQUEST = "request.json"
RESULT = "result.json"
LOG = "log.txt"


class Launcher(Protocol):
    """Runs one request in `folder`, and always comes back with a record.

    Whatever the probe does (runs out of memory, hangs, is killed), the answer is a result with an outcome, and no
    process is left behind; the same holds when `KeyboardInterrupt` passes through, which leaves no result behind.
    `folder` must exist; afterwards it holds the request, the log and, but for an interrupt, the result.
    Raises `EnvironmentUnfit` if the folder cannot be written (disk full, read-only).
    """

    def probe(self, request: ProbeRequest, folder: Path) -> ProbeResult:
        """Run one short training."""
        ...

    def inspect(self, request: InspectRequest, folder: Path) -> Inspection:
        """Find out about device and target."""
        ...
