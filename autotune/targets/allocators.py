"""The allocators of this process: the proof that what was asked of them by environment variables took effect."""

from __future__ import annotations

import sys
from dataclasses import replace

from autotune.knobs import malloc
from autotune.knobs.observed import Observed
from autotune.machine import mallocs


def available() -> tuple[str, ...]:
    """Return the values of the knob `malloc` that a process of this machine can have."""
    if sys.platform != "linux":
        return ()
    found = [name for name, library in malloc.LIBRARIES.items() if mallocs.can_preload(library)]
    return (*((malloc.GLIBC,) if mallocs.glibc_version() >= malloc.LEAST_GLIBC else ()), *found)


def with_allocators(observed: Observed) -> Observed:
    """Return `observed` with what this process allocates memory by."""
    return replace(observed, malloc=_malloc(), expandable_segments=_expands())


def _malloc() -> str | None:
    """Return the knob's value, or that it is left alone; None: it cannot be seen here."""
    if not mallocs.glibc_version():
        return None
    if preloaded := next((name for name, symbol in malloc.SYMBOLS.items() if mallocs.is_defined(symbol)), None):
        return preloaded
    return malloc.GLIBC if mallocs.keeps_large_blocks() else malloc.OWN


def _expands() -> bool | None:
    """Return whether segments of CUDA's caching allocator expand; None: there are none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    segments = torch.cuda.memory_snapshot()
    return any(one.get("is_expandable") for one in segments) if segments else None
