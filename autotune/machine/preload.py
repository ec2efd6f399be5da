"""Libraries that the dynamic loader can load before all others."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys


def is_possible(library: str) -> bool:
    """Return whether a process that preloads `library` gets it: the dynamic loader complains if it is not there.

    Opening it here would not tell: jemalloc has thread-local data for which there is no room in a running process.
    """
    if sys.platform != "linux":
        return False
    try:
        words = ["true"]
        ended = subprocess.run(words, env={**os.environ, "LD_PRELOAD": library}, capture_output=True, check=False)
    except OSError:
        return False
    return ended.returncode == 0 and not ended.stderr


def is_defined(symbol: str) -> bool:
    """Return whether a library that all of this process sees defines `symbol`."""
    return hasattr(ctypes.CDLL(None), symbol)
