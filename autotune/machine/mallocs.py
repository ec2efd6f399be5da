"""The allocators of host memory: which are installed, and which one this process uses. Linux only."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

# Bytes. Whatever it has learned, glibc maps more than 32 MiB separately (DEFAULT_MMAP_THRESHOLD_MAX); and as much as 64
# MiB whatever it was told, in all threads but the main one, whose heaps are not larger (HEAP_MAX_SIZE, malloc/arena.c).
_LARGE = 48 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt (malloc.h)
_NEVER = -1  # of M_TRIM_THRESHOLD (man 3 mallopt)
_IS_MAPPED = 2  # a bit of the size in front of each block of glibc (malloc/malloc.c, IS_MMAPPED)


def can_preload(library: str) -> bool:
    """Return whether a process that preloads `library` gets it: the dynamic loader reports a missing one.

    Opening it here would not show this: jemalloc has thread-local data for which a running process has no room.
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
    """Return the version of glibc, such as (2, 36); () for another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return ()
    return tuple(int(part) for part in version.split(".") if part.isdigit()) if name == "glibc" else ()


def is_defined(symbol: str) -> bool:
    """Return whether a library that is visible to all of this process defines `symbol`."""
    return hasattr(ctypes.CDLL(None), symbol)


def keep_freed_memory(mmap_threshold: int) -> None:
    """Have glibc keep what is freed from now on, except for blocks of at least `mmap_threshold` bytes."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, mmap_threshold)
    libc.mallopt(_M_TRIM_THRESHOLD, _NEVER)


def keeps_large_blocks() -> bool:
    """Allocate a large block; return whether glibc takes it from its heap, which it keeps, instead of mapping it."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(_LARGE)
    if not block:
        return False
    size = ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value
    libc.free(block)
    return not size & _IS_MAPPED
