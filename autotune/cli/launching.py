"""The launcher of the commands: this machine's, which says when a training takes its time, or a fleet's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autotune.cli.output import say
from autotune.core.requests import InspectRequest, Request, ResultT
from autotune.errors import AutotuneError, UsageError
from autotune.launch.base import Launcher
from autotune.launch.subprocess import SubprocessLauncher
from autotune.preparation.ranks import asked_ranks
from autotune.preparation.settings import Settings
from autotune.study import layout as disk
from autotune.targets.commands.command import Command, is_command
from autotune.targets.source import digest_of

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


@contextmanager
def launching(
    settings: Settings, fleet: tuple[str, int] | None, note: Callable[[str], None], *, quiet: bool
) -> Iterator[Launcher]:
    """Open what measures for a search: this machine, or the workers of `fleet`, a database and how many to wait for."""
    patience, isolation = settings.step_timeout_seconds, settings.isolation
    environ = asked_ranks(settings).environ
    if fleet is None:
        with SubprocessLauncher(step_timeout_seconds=patience, isolation=isolation, environ=environ) as local:
            yield local if quiet else SayingLauncher(local)
        return
    if environ:
        raise UsageError(
            f"--devices {settings.devices} chooses GPUs of this machine, and with --storage others train. Which of "
            f"theirs to use, workers are not told yet. Leave --devices out: each worker trains on one GPU."
        )
    from autotune.fleet.launcher import FleetLauncher
    from autotune.fleet.records import QueuedStudy

    folder, is_fresh = settings.folder, settings.mode == "fresh"
    begun = disk.read_request(folder) if not is_fresh and (folder / disk.STUDY).is_file() else None
    study = QueuedStudy(
        name=folder.absolute().name, target=settings.target, target_digest=digest_of(settings.target),
        isolation=isolation, environment=begun.environment if begun else None,
    )  # fmt: skip
    storage, expected = fleet
    launcher = FleetLauncher(
        storage, study, folder, is_fresh=is_fresh, expected=expected, step_timeout_seconds=patience, tell=note
    )
    has_ended = False
    try:
        yield launcher
        has_ended = True
    finally:
        with suppress(AutotuneError):  # the answer, or the first error, is what to show
            launcher.close(has_ended=has_ended)
