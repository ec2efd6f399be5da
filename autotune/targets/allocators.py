"""The allocators of this process: the proof that what was asked of them by environment variables took effect."""

from __future__ import annotations

import sys
from dataclasses import replace

from autotune.knobs.malloc import OF_C, SYMBOLS
from autotune.knobs.observed import Observed
from autotune.machine import preload


def with_allocators(observed: Observed) -> Observed:
    """Return `observed` with what this process allocates memory by."""
    return replace(observed, malloc=_malloc(), expandable_segments=_expands())


def _malloc() -> str | None:
    """Return the library whose functions all of this process sees; None where nothing could be preloaded."""
    if sys.platform != "linux":
        return None
    return next((name for name, symbol in SYMBOLS.items() if preload.is_defined(symbol)), OF_C)


def _expands() -> bool | None:
    """Return whether segments of CUDA's caching allocator expand; None: there are none. Not run on a GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    segments = torch.cuda.memory_snapshot()
    return any(one.get("is_expandable") for one in segments) if segments else None
