"""Instruments of a probe: the step clock and the memory peaks. None of them synchronises inside a window."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import psutil
import torch

from autotune.results import MemoryPeak

_CLEAR_REFS = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_RESET_PEAK = "5"  # man proc_pid_clear_refs: reset the peak resident set size to the current one


class Clock(Protocol):
    """Marks moments in the stream of work, and later tells the seconds between them."""

    def mark(self) -> None:
        """Remember this moment."""
        ...

    def intervals(self) -> list[float]:
        """Seconds between consecutive marks; waits for the last mark to be reached."""
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


class SynchronizingClock(HostClock):
    """For devices without timed events (MPS): waits for the device at every mark, which costs some overlap."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device

    def mark(self) -> None:
        """Wait for the device, then read the clock."""
        torch.accelerator.synchronize(self._device)
        super().mark()


def clock_for(device: str) -> Clock:
    """The most exact clock that the device has."""
    kind = device.partition(":")[0]
    if kind in ("cuda", "xpu"):
        return EventClock(device)
    return HostClock() if kind == "cpu" else SynchronizingClock(device)


def reset_peaks(device: str) -> None:
    """Forget the peaks so far: what importing and building needed is not what training needs."""
    if _CLEAR_REFS.exists():
        _CLEAR_REFS.write_text(_RESET_PEAK)
    if device.startswith(("cuda", "xpu")):
        _backend(device).reset_peak_memory_stats(device)


def read_peaks(device: str) -> MemoryPeak:
    """Peaks since `reset_peaks`. Takes tens of milliseconds per worker: outside the window only."""
    workers = sum(_proportional_bytes(child) for child in psutil.Process().children(recursive=True))
    peak = MemoryPeak(process_bytes=_peak_resident_bytes(), workers_bytes=workers)
    if not device.startswith(("cuda", "xpu")):
        return peak
    backend = _backend(device)
    free, total = backend.mem_get_info(device)
    return MemoryPeak(
        process_bytes=peak.process_bytes,
        workers_bytes=peak.workers_bytes,
        allocated_bytes=backend.max_memory_allocated(device),
        reserved_bytes=backend.max_memory_reserved(device),
        device_used_bytes=total - free,
        allocator_retries=int(backend.memory_stats(device).get("num_alloc_retries", 0)),
    )


def memory_share(device: str) -> float | None:
    """Share of the device's memory that the allocator holds now; decides whether a vague fault was one of memory."""
    if not device.startswith("cuda"):
        return None
    try:
        return float(torch.cuda.memory_reserved(device) / torch.cuda.get_device_properties(device).total_memory)
    except (RuntimeError, AssertionError):
        return None  # the context itself is broken, or there is no such device


def _backend(device: str) -> Any:
    """`torch.cuda` or `torch.xpu`, which have had these functions longer than `torch.accelerator` has."""
    return torch.cuda if device.startswith("cuda") else torch.xpu


def _peak_resident_bytes() -> int:
    """VmHWM; `ru_maxrss` elsewhere, which Linux would inherit from the parent (measured: 1.7 GB for `true`)."""
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def _proportional_bytes(process: psutil.Process) -> int:
    """PSS on Linux: shared pages counted once over all sharers (the plain sum was three times too high)."""
    try:
        usage = process.memory_full_info()
    except psutil.Error:
        return 0
    return int(getattr(usage, "pss", usage.uss))
