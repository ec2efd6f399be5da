"""Page faults of this process that no disk is read for: where memory is given back and mapped anew, they take time."""

from __future__ import annotations

import resource
from functools import lru_cache
from pathlib import Path

SMALL_PAGE_BYTES = 4096
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def page_faults() -> int | None:
    """Return how many there have been so far. Takes 1 us.

    None where their number says nothing of their time: a fault of a larger page takes up to several hundred times as
    long, and some sandboxes (gVisor) count none.
    """
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt or None) if _are_pages_small() else None


@lru_cache(maxsize=1)
def _are_pages_small() -> bool:
    try:
        huge = _HUGE_PAGES.read_text()
    except OSError:
        huge = ""
    return resource.getpagesize() == SMALL_PAGE_BYTES and "[always]" not in huge
