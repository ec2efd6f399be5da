"""The state of a search, seen from outside: whether one runs, and why a folder contains no study yet."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from autotune.core import codec
from autotune.core.results import Inspection
from autotune.launch.base import LOG, RESULT

LOCK = "study.lock"


def is_running(folder: Path) -> bool:
    """Return whether a process holds the lock; tested by a shared lock that is released at once."""
    try:
        # Neither a link to another place nor a pipe without a writer may block the reader.
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
    return False


def not_begun(folder: Path, inspected: Path) -> str:
    """Return why a folder in which a search was begun contains no study; `inspected` is that of its inspection."""
    if is_running(folder):
        return f"{folder} is being searched now, and has no probe yet. Its target is probably looked at. Wait for it."
    found = codec.read(inspected / RESULT, Inspection).why
    why = f": {found}" if found else ""
    return (
        f"{folder} is no study yet: its search ended before the first probe{why}. The target probably has a mistake. "
        f"Correct it, and search again. Full log: {inspected / LOG}"
    )
