"""Runs `autotune` in this process, against a fake machine, and tells answers and explained errors from faults."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from autotune.cli import main
from autotune.testing import FakeLauncher

ANSWERED = (0, 1, 2, 3, 130)  # README's exit statuses, but for a fault of autotune itself
MOST_TOLD = 600  # characters of one fault


class Stream(io.TextIOWrapper):
    """A stream as a terminal's: bytes below, strict UTF-8 above."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        """All that was written."""
        return self.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str


def run(*words: str) -> Ended:
    """`autotune *words` in the current folder."""
    out, err = Stream(), Stream()
    with (
        mock.patch("autotune.launch.subprocess.SubprocessLauncher", lambda **options: FakeLauncher()),
        mock.patch.object(sys, "argv", ["autotune", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            status = 0
        except SystemExit as ending:
            status = ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
    return Ended(status=status, stdout=out.text(), stderr=err.text())


def fault(*words: str) -> str:
    """What is wrong with how this command ended: a traceback, another status, or no word of why; empty: nothing."""
    ended = run(*words)
    is_explained = ended.status in (0, 130) or ended.stderr.strip()
    if ended.status in ANSWERED and is_explained and "Traceback (most recent call last)" not in ended.stderr:
        return ""
    return f"{words!r} ended with {ended.status}: {ended.stderr}"[:MOST_TOLD]


def assert_answered(calls: Iterable[Sequence[str]]) -> None:
    """Each call either does what was asked, or says in words why not."""
    faults = list(filter(None, (fault(*words) for words in calls)))
    assert not faults, "\n".join(faults)


def target(folder: Path) -> Path:
    """A target file; the fake machine never reads it."""
    path = folder / "model.py"
    path.write_text("def model(): ...\n")
    return path
