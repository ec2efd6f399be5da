"""The step clocks of a probe, each as exact as its device allows. They do not synchronise in a window if avoidable."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Marks moments in the stream of work, and later returns the seconds between them."""

    def mark(self) -> None:
        """Mark this moment in the stream of work."""
        ...

    def intervals(self) -> list[float]:
        """Return the seconds between consecutive marks. Waits until the last mark is reached."""
        ...

    def passed(self) -> list[float]:
        """Return the new intervals, in seconds, as far as the device has come, without leaving it idle."""
        ...

    def between(self, first: int, last: int) -> float:
        """Return the seconds between two marks, given by number from 0 on; the device must have passed both."""
        ...

    def now(self) -> float:
        """Return the host's `time.perf_counter` in seconds, once the device has done all issued work."""
        ...


class HostClock:
    """The clock of the CPU, where a step is done when its call returns."""

    def __init__(self) -> None:
        self._marks: list[float] = []
        self._told = 0

    def mark(self) -> None:
        """Mark the host's present time."""
        self._marks.append(time.perf_counter())

    def intervals(self) -> list[float]:
        """Return the seconds between consecutive marks."""
        return [after - before for before, after in pairwise(self._marks)]

    def passed(self) -> list[float]:
        """Return the seconds between the marks since the last call; on the CPU all marks have passed."""
        marks, self._told = self._marks[self._told :], max(0, len(self._marks) - 1)
        return [after - before for before, after in pairwise(marks)]

    def between(self, first: int, last: int) -> float:
        """Return the seconds between two marks, given by number from 0 on."""
        return self._marks[last] - self._marks[first]

    def now(self) -> float:
        """Return the host's `time.perf_counter`; there is nothing to wait for."""
        return time.perf_counter()


class EventClock:
    """The clock of CUDA and XPU: one event per mark on the current stream; only the end waits for the newest.

    The sum of the intervals is the wall time of the window, launch gaps and loader waits included (docs/notes/timing.md
    1, docs/notes/gpu.md 3). The host's clock cannot decide when the window is long enough: at first the host only fills
    the queue of the device, which holds about a thousand kernels, in a fraction of a step. Simulated with that queue
    and steps of 0.09 s, such a window took 4.1 s and was called noisy, instead of 0.8 s.
    """

    def __init__(self, device: str, backend: Any = None) -> None:
        """`backend` stands in for `torch.cuda` in tests."""
        self._device = device
        self._backend = backend or (torch.cuda if device.startswith("cuda") else torch.xpu)
        self._events: list[Any] = []
        self._told = 0

    def mark(self) -> None:
        """Record an event on the current stream."""
        event = self._backend.Event(enable_timing=True)
        event.record()
        self._events.append(event)

    def intervals(self) -> list[float]:
        """Return the seconds between consecutive events; waits for the last."""
        return self._between(self._events)

    def passed(self) -> list[float]:
        """Return the new intervals up to the mark before the newest, and wait for it: the device has a step left."""
        events, self._told = self._events[self._told : -1], max(0, len(self._events) - 2)
        return self._between(events) if events else []

    def between(self, first: int, last: int) -> float:
        """Return the seconds between two marks, given by number from 0 on; the device must have passed both."""
        return float(self._events[first].elapsed_time(self._events[last])) / 1e3

    def now(self) -> float:
        """Wait for the device, then read the host's clock."""
        self._backend.synchronize(self._device)
        return time.perf_counter()

    def _between(self, events: Sequence[Any]) -> list[float]:
        events[-1].synchronize()
        return [before.elapsed_time(after) / 1e3 for before, after in pairwise(events)]


class SynchronizingClock(HostClock):
    """The clock of devices without timed events (MPS): waits for the device at every mark, which costs some overlap."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device

    def mark(self) -> None:
        """Wait for the device, then read the clock."""
        self._marks.append(self.now())

    def now(self) -> float:
        """Wait for the device, then read the host's clock."""
        torch.accelerator.synchronize(self._device)
        return super().now()


def clock_for(device: str) -> Clock:
    """Return the most exact clock for the device."""
    kind = device.partition(":")[0]
    if kind in ("cuda", "xpu"):
        return EventClock(device)
    return HostClock() if kind == "cpu" else SynchronizingClock(device)
