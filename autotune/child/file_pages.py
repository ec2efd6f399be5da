"""The resident pages of mapped files: a forked process must touch them to hold the memory that a fresh one holds.

A fork maps its parent's heap, but only those pages of files that it touches itself (Linux, mm/memory.c,
`vma_needs_copy`): its resident set would lack the pages that a fresh process touches while it imports.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

_MADV_POPULATE_READ = 22  # linux/mman.h, from 5.14 on


def resident_file_pages() -> list[tuple[int, int]]:
    """Return start and length, in bytes, of all pages of mapped files that this process has touched."""
    found: list[tuple[int, int]] = []
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, permissions, _, _, inode = line.split()[:5]
            if inode == "0" or permissions[0] != "r":
                continue
            first, end = (int(part, 16) // mmap.PAGESIZE for part in span.split("-"))
            pagemap.seek(first * 8)
            entries = memoryview(pagemap.read((end - first) * 8)).cast("Q")
            for is_present, group in groupby(enumerate(entries, first), lambda page: page[1] >> 63):
                pages = list(group)
                if is_present:
                    found.append((pages[0][0] * mmap.PAGESIZE, len(pages) * mmap.PAGESIZE))
    return found


def touch(pages: Sequence[tuple[int, int]]) -> None:
    """Make these pages of mapped files resident, each given by its start and length in bytes."""
    libc = ctypes.CDLL(None)
    for start, length in pages:
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _MADV_POPULATE_READ)
