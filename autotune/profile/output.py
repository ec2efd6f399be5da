"""The folder of a profile: its readings as JSON, as a page and as scalars, and the traces of its process.

profile.json    what was asked, and all readings
profile.html    the page
trace.json      a few steps for Perfetto (written by the process of the profile, as is memory.pickle on CUDA)
tensorboard/    the steps as scalars, where tensorboard is installed
out_of_memory.pickle   on CUDA, of a profile that ran out of memory: what was alive then
log.txt         what was printed meanwhile; of a profile that failed, all there is
nsys/           with --nsys: what its command needs, and its report
"""

from __future__ import annotations

from pathlib import Path

from autotune.core import codec
from autotune.errors import UsageError
from autotune.export.rows import require
from autotune.export.tensorboard import events, scalar
from autotune.launch.base import LOG
from autotune.profile.page import render
from autotune.profile.profile import Profile
from autotune.profile.snapshot import OUT_OF_MEMORY

READINGS, PAGE, SCALARS = "profile.json", "profile.html", "tensorboard"


def make_profile_folder(folder: Path) -> None:
    """Make the folder, before anything is measured. Raises `UsageError` if it cannot be, or if anything lies in it."""
    try:
        folder.mkdir(exist_ok=True)
        is_empty = {one.name for one in folder.iterdir()} <= {LOG, OUT_OF_MEMORY}  # left by one that failed
    except FileNotFoundError as error:
        if folder.parent.is_dir():  # of the system, as /proc is
            raise UsageError(
                f"{folder} cannot be made: {folder.parent} takes no new folders. It is probably one of the system. "
                f"Name another one."
            ) from error
        raise UsageError(
            f"{folder} cannot be made: there is no folder {folder.parent}. It was probably mistyped. Make it first, or "
            f"name another one."
        ) from error
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written to: {error.strerror or error}. It is probably a file, or read-only. Name "
            f"another folder."
        ) from error
    if not is_empty:
        raise UsageError(
            f"{folder} is not empty. An earlier profile probably lies there, and the two would be mixed. Remove it, or "
            f"name another folder."
        )


def write_profile(folder: Path, found: Profile) -> str:
    """Write all but the traces; return a sentence on files that were not written, and why; empty if all were.

    Raises `UsageError` where the folder cannot be written to.
    """
    try:
        codec.write(folder / READINGS, found)
        (folder / PAGE).write_text(render(found), encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written to: {error.strerror or error}. The disk is probably full. Name another folder."
        ) from error
    return _scalars(folder / SCALARS, found)


def _scalars(folder: Path, found: Profile) -> str:
    """Write every timed step, and the parts of one, for TensorBoard."""
    try:
        require("tensorboard", extra="tensorboard")
    except UsageError:
        return (
            f"{SCALARS}/ was not written: tensorboard is not installed. "
            "Install it with `pip install -e '.[tensorboard]'` in autotune's clone."
        )
    steps = [(step, scalar("step/ms", 1000 * taken)) for step, taken in enumerate(found.result.step_seconds)]
    parts = [scalar(f"part/{one.part} ms", 1000 * one.seconds) for one in found.result.parts]
    events(folder, parts, steps)
    return ""
