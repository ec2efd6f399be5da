"""Page faults of this process without a read from disk: they take time where memory is freed and mapped anew."""

from __future__ import annotations

import mmap
import resource
import time
from functools import lru_cache
from pathlib import Path
from statistics import median

SMALL_PAGE_BYTES = 4096
_TRIALS, _TRIAL_BYTES = 5, 2**20  # 4 ms in all where a fault takes 3 us; 4 and 16 MiB gave the same within 5 %
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def page_faults() -> int | None:
    """Return the number of minor page faults so far. It takes 1 us.

    None where their number does not determine their time: a fault of a larger page takes up to several hundred times as
    long, and some sandboxes (gVisor) count none.
    """
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt or None) if _are_pages_small() else None


def fault_seconds() -> float | None:
    """Return the processor seconds that one such fault takes here, about: the median of a few trials.

    Each trial fills fresh memory twice, and has faults only the first time. What a fault takes from the caches is not
    in it. None if there is no memory for it.
    """
    filling, taken = b"\1" * _TRIAL_BYTES, list[float]()
    for _ in range(_TRIALS):
        try:
            fresh = mmap.mmap(-1, _TRIAL_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            return None
        with fresh:
            read = [time.thread_time()]
            for _ in range(2):
                fresh[:] = filling
                read.append(time.thread_time())
        first, second = read[1] - read[0], read[2] - read[1]
        taken.append(max(0.0, first - second) * SMALL_PAGE_BYTES / _TRIAL_BYTES)
    return median(taken)


@lru_cache(maxsize=1)
def _are_pages_small() -> bool:
    try:
        huge = _HUGE_PAGES.read_text()
    except OSError:
        huge = ""
    return resource.getpagesize() == SMALL_PAGE_BYTES and "[always]" not in huge
