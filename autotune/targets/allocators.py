"""Reads and sets the allocators of this process: every probe proves that environment variables for them took effect."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace

from autotune.knobs import malloc
from autotune.knobs.observed import Observed
from autotune.machine import mallocs


def available() -> tuple[str, ...]:
    """Return the values of the knob `malloc` that are available on this machine."""
    if sys.platform != "linux":
        return ()
    found = [name for name, library in malloc.LIBRARIES.items() if mallocs.can_preload(library)]
    return (*((malloc.GLIBC,) if mallocs.glibc_version() >= malloc.LEAST_GLIBC else ()), *found)


def set_after_start(environ: Mapping[str, str]) -> None:
    """Set the variables that `malloc.after_start` returned, and the allocator as it would be had they been there."""
    os.environ.update(environ)
    if environ:
        mallocs.keep_freed_memory(malloc.KEEPING["mmap_threshold"])


def with_allocators(observed: Observed) -> Observed:
    """Return `observed` with the allocators of this process."""
    return replace(observed, malloc=_malloc(), expandable_segments=_expands())


def _malloc() -> str | None:
    """Return the value of the knob `malloc` that is in effect; None: it cannot be seen here."""
    if not mallocs.glibc_version():
        return None
    if preloaded := next((name for name, symbol in malloc.SYMBOLS.items() if mallocs.is_defined(symbol)), None):
        return preloaded
    return malloc.GLIBC if mallocs.keeps_large_blocks() else malloc.OWN


def _expands() -> bool | None:
    """Return whether segments of CUDA's caching allocator are expandable; None: there are no segments."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    segments = torch.cuda.memory_snapshot()
    return any(one.get("is_expandable") for one in segments) if segments else None
