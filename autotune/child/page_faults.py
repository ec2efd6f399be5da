"""Page faults of this process without a read from disk: they take time where memory is freed and mapped anew."""

from __future__ import annotations

import resource
from functools import lru_cache
from pathlib import Path

SMALL_PAGE_BYTES = 4096
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def page_faults() -> int | None:
    """Return the number of minor page faults so far. It takes 1 us.

    None where their number does not determine their time: a fault of a larger page takes up to several hundred times as
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
