"""Runs `autotune` in this process, against a fake machine, and tells answers and explained errors from faults."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from autotune.testing import FakeLauncher
from tests.commandline import run_here

ANSWERED = (0, 1, 2, 3, 130)  # README's exit statuses, but for a fault of autotune itself
MOST_TOLD = 600  # characters of one fault


class _OfThisProcess(FakeLauncher):
    """A fake that is made and ended as the real one is."""

    fork_servers = None  # it forks nothing

    def __init__(self, **options: object) -> None:
        super().__init__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`autotune *words` in the current folder, with these environment variables."""
    return run_here(Path.cwd(), *words, launcher=_OfThisProcess, **variables)


def fault(*words: str) -> str:
    """What is wrong with how this command ended: a traceback, another status, or no word of why; empty: nothing."""
    ended = run(*words)
    is_explained = ended.returncode in (0, 130) or ended.stderr.strip()
    if ended.returncode in ANSWERED and is_explained and "Traceback (most recent call last)" not in ended.stderr:
        return ""
    return f"{words!r} ended with {ended.returncode}: {ended.stderr}"[:MOST_TOLD]


def assert_answered(calls: Iterable[Sequence[str]]) -> None:
    """Each call either does what was asked, or says in words why not."""
    faults = list(filter(None, (fault(*words) for words in calls)))
    assert not faults, "\n".join(faults)


def target(folder: Path) -> Path:
    """A target file; the fake machine never reads it."""
    path = folder / "model.py"
    path.write_text("def model(): ...\n")
    return path
