"""The user's lines whose tensors are alive, for a training that ran out of memory and is repeated: nothing is timed.

    an operation makes a tensor ─► its line and bytes, until it is freed ─► an allocation fails ─► sites

On CUDA the allocator's own history says the same (`memory_history.py`), and costs less.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from autotune.core.memory_breakdown import AllocationSite, sites_of
from autotune.memory.breakdown import UserPlaces
from autotune.memory.tensor_tracker import Ledger
from autotune.targets.tracebacks import line_of


class AllocationLines(Ledger):  # type: ignore[no-untyped-call]  # of torch 2.13
    """A dispatch mode that knows the line of every tensor that is alive."""

    def __init__(self, device: str) -> None:
        super().__init__(device, contents=True)
        self._places = UserPlaces()
        self._frame: FrameType | None = None  # that called the operation which runs
        self._made = dict[int, tuple[tuple[str, int] | None, int]]()  # line and bytes, by storage
        self.sites: tuple[AllocationSite, ...] = ()  # when an operation failed the last time; (): none did

    def begin(self) -> None:
        """Watch the thread that calls this, until the process ends."""
        self.__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation; if it fails, note what is alive."""
        self._frame = sys._getframe(1)
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        except Exception:  # of any device's allocator; it is raised again
            self.sites = sites_of((line_of(*line) if line else "", size) for line, size in self._made.values())
            raise
        finally:
            self._frame = None

    def _make(self, key: int, size: int) -> None:
        super()._make(key, size)
        self._made[key] = self._places.of(self._frame), size

    def _free(self, key: int, size: int) -> None:
        super()._free(key, size)
        self._made.pop(key, None)
