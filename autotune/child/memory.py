"""The memory that a probe needed: peaks on host and device from its first step to its last batch."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import torch
from msgspec.structs import replace

from autotune.core.results import MemoryPeak
from autotune.machine.host import process_bytes

WINDOW = "measure"  # the phase in which a retry of the allocator counts: in the ones before, it may still settle
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # man proc_pid_clear_refs: reset the peak resident set size to the current one


class MemoryMeter:
    """Peaks from its making on: what importing and building needed is not what training needs.

    Told the phases as they begin, it knows which of the allocator's retries fell into the window. Metal keeps no
    peaks: there it is the most that was seen at the ends of steps and phases. What its allocator holds is little less
    then than during a step, because freed buffers stay in its pools. Not run: no such device at hand.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._before: int | None = None  # retries when the window began; None: not inside it
        self._retries = 0
        self._seen = (0, 0)  # the most bytes of tensors, and of all that Metal gave this process
        with suppress(OSError):  # no such file off Linux; refused to an interpreter with capabilities of its own
            _CLEAR_REFS.write_text(_RESET_PEAK)
        if _has_allocator(device):
            _backend(device).init()  # a target may not have touched the device yet, and torch 2.11 then knows no peaks
            _backend(device).reset_peak_memory_stats(device)

    def step(self) -> None:
        """A step has ended. Costs nothing where the device keeps peaks itself, next to nothing elsewhere."""
        if self._device.startswith("mps"):
            now = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
            self._seen = max(self._seen[0], now[0]), max(self._seen[1], now[1])

    def phase(self, name: str) -> None:
        """Phase `name` begins, and the one before it ends."""
        self.step()
        if not _has_allocator(self._device):
            return
        retries = int(_backend(self._device).memory_stats(self._device).get("num_alloc_retries", 0))
        if self._before is not None:
            self._retries += retries - self._before
        self._before = retries if name == WINDOW else None

    def read(self) -> MemoryPeak:
        """The peaks so far. Takes tens of milliseconds per worker: outside the window only.

        Workers that have ended by then are not seen, nor is what they had at their own peak.
        """
        children = psutil.Process().children(recursive=True)
        workers = sum(_proportional_bytes(child, 1 + len(children)) for child in children)
        host = MemoryPeak(process_bytes=_peak_resident_bytes(), workers_bytes=workers)
        if self._device.startswith("mps"):
            self.step()
            return replace(host, allocated_bytes=self._seen[0], reserved_bytes=self._seen[1])
        if not _has_allocator(self._device):
            return host
        backend = _backend(self._device)
        free, total = backend.mem_get_info(self._device)
        return replace(
            host,
            allocated_bytes=backend.max_memory_allocated(self._device),
            reserved_bytes=backend.max_memory_reserved(self._device),
            device_used_bytes=total - free,
            reserved_at_end_bytes=backend.memory_reserved(self._device),
            allocator_retries=self._retries,
        )


def memory_share(device: str) -> float | None:
    """Share of its memory that the device has given away, or its allocator of what it may have; 1 once it refused any.

    Decides whether a vague fault was one of memory: cuDNN tries one engine after the other where the allocator refuses
    their workspace, says at last that there was none, and by then most of the memory may be free again.
    """
    if not device.startswith("cuda"):
        return None
    try:
        if torch.cuda.memory_stats(device).get("num_ooms", 0):
            return 1.0
        free, total = torch.cuda.mem_get_info(device)
        allowed = total * torch.cuda.get_per_process_memory_fraction(device)
        return float(max(1 - free / total, torch.cuda.memory_reserved(device) / allowed))
    except (RuntimeError, AssertionError):
        return None  # the context itself is broken, or there is no such device


def _has_allocator(device: str) -> bool:
    return device.startswith(("cuda", "xpu"))


def _backend(device: str) -> Any:
    """`torch.cuda` or `torch.xpu`, which have had these functions longer than `torch.accelerator` has."""
    return torch.cuda if device.startswith("cuda") else torch.xpu


def _peak_resident_bytes() -> int:
    """VmHWM; `ru_maxrss` elsewhere, which Linux would inherit from the parent (measured: 1.7 GB for `true`)."""
    peak = process_bytes("VmHWM")
    if peak is not None:
        return peak
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def _proportional_bytes(process: psutil.Process, sharers: int) -> int:
    """Return its own memory and its part of what probe and workers share (the plain sum was three times too high).

    Not the kernel's PSS: whoever else has the same files open, or the same fork server, would make it smaller.
    """
    try:
        usage = process.memory_full_info()
    except psutil.Error:
        return 0
    return int(usage.uss + max(0, usage.rss - usage.uss) / sharers)
