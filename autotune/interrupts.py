"""Remembers Ctrl-C, because Python swallows what is raised in a `__del__` or the callback of a weak reference.

    Ctrl-C ─► KeyboardInterrupt, as always ─► swallowed: "Exception ignored in ..." ─► `check` raises it again

`check` is called before each long piece of work: the next stage, the next process.
"""

from __future__ import annotations

import signal
from types import FrameType

_is_asked = False


def heed() -> None:
    """Remember Ctrl-C from now on; handle SIGTERM, by which schedulers stop a job, like it. Needs the main thread."""
    forget()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)


def check() -> None:
    """Raise `KeyboardInterrupt` if Ctrl-C was pressed since the last `forget`."""
    if _is_asked:
        raise KeyboardInterrupt


def forget() -> None:
    """Forget the last Ctrl-C: what it was meant to end has ended, and the command goes on."""
    global _is_asked
    _is_asked = False


def _interrupted(number: int, frame: FrameType | None) -> None:
    global _is_asked
    _is_asked = True
    raise KeyboardInterrupt
