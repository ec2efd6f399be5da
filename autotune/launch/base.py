"""The interface between the search and whatever runs a request."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from autotune.core.requests import Request, ResultT

REQUEST = "request.json"
RESULT = "result.json"
LOG = "log.txt"


class Launcher(Protocol):
    """Runs one request in `folder`, and always returns its result.

    Whatever the process does (runs out of memory, hangs, is killed), the result has an outcome, and no process is left
    behind; the same holds when `KeyboardInterrupt` is raised. `folder` must exist; afterwards it holds request, log and
    result, and after an interrupt only the log: a request without a result means that the searching process died.
    Raises `EnvironmentUnfit` if the folder cannot be written (disk full, read-only).
    """

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        """Return the result, of the type that this kind of request asks for."""
        ...
