"""What only a GPU can tell: how such a question is asked, and the ways not to be able to answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autotune.core.records import Record


class NotRun(Exception):
    """Why a question cannot be answered here, in a few words."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One of them. `ask` is called in a process of its own with the device, and answers in lines with numbers.

    A line that is there is kept, whatever becomes of the next.
    """

    name: str
    what: str
    decides: str  # the constant or rule that the answer settles, and its file
    ask: Callable[[str], Iterable[str]]
    seconds: float = 60.0  # that it may take


class Answer(Record, frozen=True, kw_only=True):
    """What came of it."""

    name: str
    what: str
    decides: str
    lines: tuple[str, ...] = ()
    not_run: str = ""  # why, or why not to its end; empty: it was
    seconds: float = 0.0


class Answers(Record, frozen=True, kw_only=True):
    """All of one call."""

    machine: str
    answers: tuple[Answer, ...]


def needs_cuda(device: str) -> None:
    """Raises `NotRun` for other devices."""
    if not device.startswith("cuda"):
        raise NotRun(f"needs a CUDA device, and this is {device}")
