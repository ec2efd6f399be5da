"""What CUDA's allocator remembers for an out-of-memory: who made each block, and what was alive when it gave up.

    recorded ─► an allocation fails ─► torch calls the observer, while all is still alive ─► sites, and a file

Recording costs about 2 us for each allocation (torch 2.13, cuda/memory.py), so it is off while steps are timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from autotune.core.memory_breakdown import AllocationSite
from autotune.profile.snapshot import OUT_OF_MEMORY, sites_of_snapshot

_MOST_ALLOCATIONS = 100_000  # that a history keeps; older ones are forgotten, and blocks keep their frames


class MemoryHistory:
    """The history of one CUDA device; on other devices it does nothing."""

    def __init__(self, device: str, folder: Path | None) -> None:
        """`folder`: for the snapshot; None: it is not kept."""
        self._is_cuda = device.startswith("cuda")
        self._path = None if folder is None else folder / OUT_OF_MEMORY
        self._written = False
        self.sites: tuple[AllocationSite, ...] = ()  # when memory ran out the last time; (): it did not

    def begin(self) -> None:
        """Record from now on, and be told when memory runs out. torch never forgets an observer.

        Without these functions, which torch calls private, there is no history: a profile reports all else without it.
        """
        if not self._is_cuda:
            return
        torch.cuda.init()  # type: ignore[no-untyped-call]  # torch does not say
        try:
            torch._C._cuda_attach_out_of_memory_observer(self._ran_out)  # type: ignore[attr-defined]
            self.record()
        except (AttributeError, TypeError, RuntimeError):
            self._is_cuda = False

    def record(self) -> None:
        """Record who makes blocks."""
        if self._is_cuda:
            torch.cuda.memory._record_memory_history(max_entries=_MOST_ALLOCATIONS, stacks="python")

    def pause(self) -> None:
        """Record no more; blocks that are alive keep their frames."""
        if self._is_cuda:
            torch.cuda.memory._record_memory_history(enabled=None)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record within."""
        self.record()
        try:
            yield
        finally:
            self.pause()

    def end(self) -> None:
        """Record no more, and take the file away: memory may have run out, but training went on all the same."""
        self.pause()
        self._is_cuda, self.sites = False, ()
        if self._path is not None and self._written:
            self._path.unlink(missing_ok=True)

    def _ran_out(self, device: int, *_: int) -> None:
        """Keep what is alive. Whatever fails here must not hide that memory ran out."""
        if not self._is_cuda:
            return
        with suppress(Exception):
            self.sites = sites_of_snapshot(torch.cuda.memory._snapshot(), device)
            if self._path is not None:
                torch.cuda.memory._dump_snapshot(str(self._path))  # type: ignore[no-untyped-call]
                self._written = True
