"""The allocators of host memory: which are there, and which one this process has. Linux only."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

_LARGE = 64 << 20  # bytes: glibc maps more than 32 MiB anew, whatever it has learned (DEFAULT_MMAP_THRESHOLD_MAX)
_IS_MAPPED = 2  # a bit of the size before every block of glibc (malloc/malloc.c, IS_MMAPPED)


def can_preload(library: str) -> bool:
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


def glibc_version() -> tuple[int, ...]:
    """Return such as (2, 36); () for another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return ()
    return tuple(int(part) for part in version.split(".") if part.isdigit()) if name == "glibc" else ()


def is_defined(symbol: str) -> bool:
    """Return whether a library that all of this process sees defines `symbol`."""
    return hasattr(ctypes.CDLL(None), symbol)


def keeps_large_blocks() -> bool:
    """Return whether glibc takes large blocks from its heap, which it keeps, and does not map them: by taking one."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(_LARGE)
    if not block:
        return False
    size = ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value
    libc.free(block)
    return not size & _IS_MAPPED
