"""Ctrl-C that cannot get lost: Python swallows what is raised in a `__del__` or the callback of a weak reference.

    Ctrl-C ─► KeyboardInterrupt, as always ─► swallowed: "Exception ignored in ..." ─► `check` raises it again

`check` stands where a command goes on to something long: the next stage, the next process.
"""

from __future__ import annotations

import signal
from types import FrameType

_is_asked = False


def heed() -> None:
    """From now on remember Ctrl-C, and take a scheduler's polite stop (SIGTERM) for one. Needs the main thread."""
    forget()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)


def check() -> None:
    """Raise `KeyboardInterrupt` if one was asked for and has not ended what it was to end."""
    if _is_asked:
        raise KeyboardInterrupt


def forget() -> None:
    """The interrupt has ended what it was to end, and the command goes on."""
    global _is_asked
    _is_asked = False


def _interrupted(number: int, frame: FrameType | None) -> None:
    global _is_asked
    _is_asked = True
    raise KeyboardInterrupt
