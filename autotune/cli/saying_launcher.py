"""The launcher of the commands: it says when a training takes its time."""

from __future__ import annotations

import threading
from pathlib import Path

from autotune.cli.output import say
from autotune.core.requests import InspectRequest, Request, ResultT
from autotune.launch.base import Launcher
from autotune.targets.commands.command import Command, is_command

SILENT_SECONDS = 20.0  # imports and a small data set take less; a compilation on few cores takes minutes
LATE = (
    "{} has taken no training step for {:.0f} s. It may prepare data, or compile, which TORCHDYNAMO_DISABLE=1 before "
    "autotune leaves out. Every probe begins like this. Ctrl-C stops here."
)


class SayingLauncher:
    """A launcher that does not let a person wait for a silent command without a word."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        """Run the request in a process of its own; see `Launcher`."""
        target, takes_first_step = request.target or "", isinstance(request, InspectRequest)
        if not takes_first_step or not is_command(target):
            return self._launcher.run(request, folder)
        text = LATE.format(Command.parse(target).label, SILENT_SECONDS)
        late = threading.Timer(SILENT_SECONDS, say, (text,), {"stderr": True})
        late.start()
        try:
            return self._launcher.run(request, folder)
        finally:
            late.cancel()
