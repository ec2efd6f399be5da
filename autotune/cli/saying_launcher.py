"""The launcher of the commands: it says so if a training is slow to begin."""

from __future__ import annotations

import threading
from pathlib import Path

from autotune.cli.output import say
from autotune.core.requests import InspectRequest, Request, ResultT
from autotune.launch.base import REQUEST, RESULT, Launcher
from autotune.targets.commands.command import Command, is_command
from autotune.targets.commands.hygiene import RANKS_FOLDER

SILENT_SECONDS = 20.0  # imports and a small data set take less; compiling on few cores takes minutes
LATE = (
    "{} has taken no training step for {:.0f} s. It may prepare data, have slow steps (a smaller batch or model is "
    "faster), or compile, which TORCHDYNAMO_DISABLE=1 before autotune leaves out. Every probe begins like this. If it "
    "trains without backward(), as by torch.func, no step is seen: write autotune.step(loss=loss, samples=len(batch)) "
    "after each update. Ctrl-C stops here."
)
LATE_RANK = (
    "Rank {} of {} has taken no training step for {:.0f} s, and rank {} has. A rank that only answers others, such as "
    "a parameter server, takes none, and all ranks are waited for. Let each take steps; Ctrl-C stops here."
)


def _tell(label: str, folder: Path, is_over: threading.Event) -> None:
    """Say once that nothing trains, and once which rank does not train while others have waited for it."""
    seconds, said, before = 0.0, set[str](), None
    while not is_over.wait(SILENT_SECONDS):
        seconds += SILENT_SECONDS
        silent, trained = _ranks(folder)
        is_late = bool(trained and silent) and silent == before  # else they may be only a moment later
        before = silent if trained else None
        if not trained and LATE not in said:
            say(LATE.format(label, seconds), stderr=True)
            said.add(LATE)
        elif is_late and LATE_RANK not in said:
            say(LATE_RANK.format(silent[0], label, seconds, trained[0]), stderr=True)
            said.add(LATE_RANK)


def _ranks(folder: Path) -> tuple[list[int], list[int]]:
    """Return the ranks of a command that have not answered, and those that have; both empty for one process."""
    ranks = {int(one.parent.name): (one.parent / RESULT).exists() for one in folder.glob(f"{RANKS_FOLDER}/*/{REQUEST}")}
    return sorted(one for one in ranks if not ranks[one]), sorted(one for one in ranks if ranks[one])


class SayingLauncher:
    """A launcher that informs a waiting person when a command is silent for long."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        """Run the request in a process of its own, and return its result; see `Launcher`."""
        target, takes_first_step = request.target or "", isinstance(request, InspectRequest)
        if not takes_first_step or not is_command(target):
            return self._launcher.run(request, folder)
        is_over, label = threading.Event(), Command.parse(target).label
        late = threading.Thread(target=_tell, args=(label, folder, is_over), daemon=True)
        late.start()
        try:
            return self._launcher.run(request, folder)
        finally:
            is_over.set()
            late.join()
