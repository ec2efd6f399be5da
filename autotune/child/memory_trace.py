"""The memory of the process over the window: readings at step ends, thinned out as their number grows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

MOST_READINGS = 64  # a slope needs about twenty (docs/notes/memory.md 3); the record must stay short

_STATM = Path("/proc/self/statm")


class MemoryTrack:
    """Evenly spaced readings over any number of steps. `read` returns bytes, or None if they are unknown."""

    def __init__(self, read: Callable[[], int | None]) -> None:
        self._read = read
        self._steps = self._calls = 0
        self._stride = 1
        self._readings: list[tuple[int, int]] = []

    @property
    def readings(self) -> tuple[tuple[int, int], ...]:
        """Pairs: index of the step in the window, bytes used at its end."""
        return tuple(self._readings)

    def step(self, steps: int = 1) -> None:
        """Note that `steps` steps have ended. A reading that is due takes a few microseconds."""
        self._steps += steps
        self._calls += 1
        if (self._calls - 1) % self._stride:
            return
        used = self._read()
        if used is None:
            return
        self._readings.append((self._steps - 1, used))
        if len(self._readings) > MOST_READINGS:
            self._stride *= 2
            self._readings = self._readings[::2]


def track_on(device: str) -> MemoryTrack:
    """Return a track of the memory that may grow: tensors on a GPU, else the resident set of this process."""
    if device.startswith("cuda"):
        # The nested form of the statistics: `memory_allocated` reads the flat one, which sorts over 100 entries at
        # every step.
        return MemoryTrack(
            lambda: int(torch.cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["current"])
        )
    if device.startswith("mps"):  # not tested: no such device available
        return MemoryTrack(torch.mps.current_allocated_memory)
    return MemoryTrack(_resident_reader())


def _resident_reader() -> Callable[[], int | None]:
    if not _STATM.exists():
        return lambda: None
    statm = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)  # kept open: a reading takes one microsecond (measured)
    page = os.sysconf("SC_PAGE_SIZE")
    return lambda: int(os.pread(statm, 128, 0).split()[1]) * page
