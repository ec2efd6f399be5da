"""The files of one probe (request, log and result in a folder that may not be writable) and its pipes."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from autotune.core import codec
from autotune.core.records import Record
from autotune.core.requests import Asked, Request
from autotune.errors import EnvironmentUnfit, StudyError
from autotune.launch.base import LOG, REQUEST, RESULT
from autotune.targets.commands.hygiene import OUTPUT_FOLDER, RANKS_FOLDER
from autotune.units import format_bytes

_LOG_HEAD_BYTES = 64 * 2**10  # kept of the start of a long log
_LOG_TAIL_BYTES = 192 * 2**10  # kept of its end: the folder of a study is kept, and a probe may print for half an hour

COMPILED = "TORCHINDUCTOR_CACHE_DIR"  # environment variable: where torch.compile keeps the code that it generates
COMPILED_FOLDER = "compiled"  # the same in a study, shared by its probes


def cache_of(request: Request[Any], folder: Path) -> Path:
    """Return the place of generated code for a request in `folder`: one for the whole study, else in that folder."""
    if folder.parent.name == request.FOLDER:
        return folder.parent.parent / COMPILED_FOLDER
    return (folder.parent if folder.name == request.FOLDER else folder) / COMPILED_FOLDER


def store(folder: Path, name: str, record: Record) -> None:
    """Write a record of a probe atomically. Raises `EnvironmentUnfit`."""
    try:
        codec.write(folder / name, record)
    except OSError as error:
        with suppress(OSError):
            (folder / f"{name}.partial").unlink(missing_ok=True)
        raise unwritable(folder, error) from error


def request_in(folder: Path, kind: type[Asked]) -> Asked:
    """Return the request of the result in `folder`. Raises `StudyError` if it is damaged or not there."""
    try:
        return codec.read(folder / REQUEST, kind)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise StudyError(
            f"{folder} has a {RESULT} but no {REQUEST}, so it is not known what was measured. It was probably "
            f"copied in part, or that file was deleted. Copy it again, or move {folder} away to go on without it."
        ) from error


def open_log(folder: Path) -> BinaryIO:
    """Return an empty log, and delete the result of an earlier run next to it. Raises `EnvironmentUnfit`."""
    try:
        (folder / RESULT).unlink(missing_ok=True)
        return (folder / LOG).open("wb")
    except OSError as error:
        raise unwritable(folder, error) from error


def new_pipe(open_ends: ExitStack) -> tuple[FileIO, FileIO]:
    """Return the read end and the write end of a new pipe; `open_ends` closes them if they are still open."""
    read, write = os.pipe()
    return open_ends.enter_context(FileIO(read, "r")), open_ends.enter_context(FileIO(write, "w"))


def log_tail(folder: Path, most_bytes: int) -> str:
    """Return the end of the log as text that can be shown: what is not printable is replaced."""
    with (folder / LOG).open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - most_bytes))
        text = log.read().decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)


def take_outputs_away(folder: Path) -> None:
    """Delete what a command wrote into the folder of its probe, if anything."""
    for place in (OUTPUT_FOLDER, RANKS_FOLDER):
        shutil.rmtree(folder / place, ignore_errors=True)


def tidy(folder: Path) -> None:
    """Delete what a command wrote, and cut out the middle of a long log, in place because the disk may be full."""
    take_outputs_away(folder)
    with (folder / LOG).open("r+b") as log:
        size = log.seek(0, os.SEEK_END)
        left_out = size - _LOG_HEAD_BYTES - _LOG_TAIL_BYTES
        if left_out <= 0:
            return
        log.seek(size - _LOG_TAIL_BYTES)
        tail = log.read()
        log.seek(_LOG_HEAD_BYTES)
        log.write(b"\n[autotune left out %d bytes here]\n" % left_out + tail)
        log.truncate()


def unwritable(place: Path, error: OSError | None) -> EnvironmentUnfit:
    """Return the error for a place that could not be written; `error` is None if the probe met it."""
    what = "the probe's result did not fit" if error is None else error.strerror or error
    nearest = next(above for above in (place, *place.absolute().parents) if above.exists())
    free = format_bytes(shutil.disk_usage(nearest).free)
    return EnvironmentUnfit(
        f"{place} cannot be written: {what} ({free} free there). The disk or a quota is probably full, or the folder "
        f"is read-only or another user's. Free some space or keep the study elsewhere with --study, a race with "
        f"--folder; what was recorded is kept."
    )
