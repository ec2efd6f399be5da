"""The step clock of a probe, as exact as its device allows; none synchronises inside a window that can do without."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Marks moments in the stream of work, and later tells the seconds between them."""

    def mark(self) -> None:
        """Remember this moment."""
        ...

    def intervals(self) -> list[float]:
        """Seconds between consecutive marks; waits for the last mark to be reached."""
        ...

    def now(self) -> float:
        """The host's `time.perf_counter` as soon as the device has done all that was issued."""
        ...


class HostClock:
    """For the CPU, where a step is done when its call returns."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        """Read the monotonic clock."""
        self._marks.append(time.perf_counter())

    def intervals(self) -> list[float]:
        """Differences of the readings."""
        return [after - before for before, after in zip(self._marks, self._marks[1:], strict=False)]

    def now(self) -> float:
        """The reading; there is nothing to wait for."""
        return time.perf_counter()


class EventClock:
    """For CUDA and XPU: one event per mark on the current stream, no waiting until the end.

    Checked on a GPU only by `tests/gpu`; the sum of the intervals is the wall time of the window, launch gaps and
    loader waits included (measurement note C1).
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._events: list[Any] = []

    def mark(self) -> None:
        """Record an event."""
        event = _backend(self._device).Event(enable_timing=True)
        event.record()
        self._events.append(event)

    def intervals(self) -> list[float]:
        """Differences of the event times, in seconds."""
        self._events[-1].synchronize()
        pairs = zip(self._events, self._events[1:], strict=False)
        return [before.elapsed_time(after) / 1e3 for before, after in pairs]

    def now(self) -> float:
        """Wait for the device, then read the host's clock."""
        _backend(self._device).synchronize(self._device)
        return time.perf_counter()


class SynchronizingClock(HostClock):
    """For devices without timed events (MPS): waits for the device at every mark, which costs some overlap."""

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
    """The most exact clock that the device has."""
    kind = device.partition(":")[0]
    if kind in ("cuda", "xpu"):
        return EventClock(device)
    return HostClock() if kind == "cpu" else SynchronizingClock(device)


def _backend(device: str) -> Any:
    """`torch.cuda` or `torch.xpu`, which have had these functions longer than `torch.accelerator` has."""
    return torch.cuda if device.startswith("cuda") else torch.xpu
