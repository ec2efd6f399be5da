"""One launcher for a whole session of tests: all tests share its fork servers, wherever they work.

A fork takes a tenth of a second where a fresh interpreter with torch takes three.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any, Self
from unittest import mock

from autotune.core.forking import Imports
from autotune.core.requests import Request, ResultT
from autotune.core.results import Isolation
from autotune.launch.fork_servers import ForkServer, ForkServers
from autotune.launch.imports import WITH_OPTIMIZERS
from autotune.launch.subprocess import SubprocessLauncher

MARK = "_AUTOTUNE_TEST_HOME"  # of the folder that a command runs in
# Variables that differ from test to test and mean nothing to a probe: each set has its fork server.
OF_TESTS = ("PYTEST_", "AUTOTUNE_", "TERM", "COLUMNS", "LINES", "NO_COLOR", "TORCHINDUCTOR_CACHE_DIR", MARK)


class SessionLauncher(SubprocessLauncher):
    """Forks what it is asked, into the working folder of the moment, and believes what a forked probe dies of."""

    doubted = frozenset()

    def __init__(self, place: Path) -> None:
        """`place`: an empty folder that fork servers are started in."""
        child = str(Path(__file__).with_name("child_anywhere.py"))
        super().__init__(command=(sys.executable, "-P", child, str(place)), isolation="fork")
        self.fork_servers = _ForkServers(self._command, place)
        self._place = place

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        """Run the request in a forked process; see `Launcher`."""
        (self._place / "here").write_text(str(Path.cwd()))
        return super().run(request, folder)

    def lent(
        self, *, isolation: Isolation = "fork", step_timeout_seconds: float | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Any:  # fmt: skip
        """This launcher to a command, which makes one and ends it; a real one of its own where it is to be fresh."""
        if isolation == "fresh" or environ:
            return SubprocessLauncher(step_timeout_seconds=step_timeout_seconds, environ=environ, isolation=isolation)
        return _Lent(self, step_timeout_seconds)

    def _environment(self, request: Request[Any]) -> dict[str, str]:
        same = {name: value for name, value in os.environ.items() if not name.startswith(OF_TESTS)}
        with mock.patch.dict(os.environ, same, clear=True):
            return super()._environment(request)


class _Lent:
    def __init__(self, launcher: SessionLauncher, step_timeout_seconds: float | None) -> None:
        self._launcher, self._timeout, self.fork_servers = launcher, step_timeout_seconds, launcher.fork_servers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        with mock.patch.object(self._launcher, "_step_timeout_seconds", self._timeout):
            return self._launcher.run(request, folder)


class _ForkServers(ForkServers):
    """One fork server for each environment: it imports nothing but torch, forks leave its folder."""

    def __init__(self, command: tuple[str, ...], place: Path) -> None:
        super().__init__(command)
        self._place = place

    def _for(self, target: str | None, environ: Mapping[str, str]) -> ForkServer:
        with chdir(self._place):
            self._imports = {(Path.cwd(), target): Imports(statements=(WITH_OPTIMIZERS,))}
            return super()._for(target, environ)
