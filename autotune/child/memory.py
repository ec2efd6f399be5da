"""Measures the memory that a probe needed: peaks on host and device from its first step to its last batch."""

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

WINDOW = "measure"  # the phase in which a retry of the allocator counts: before it, the allocator may still settle
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # man proc_pid_clear_refs: reset the peak resident set size to the current one


class MemoryMeter:
    """Peaks since this object was made: memory for importing and building is left out.

    It gets each phase as it begins, so it knows which of the allocator's retries were in the window. Metal records
    no peaks: there the peak is the highest value at the ends of steps and phases. Its allocator then holds little less
    than during a step, because freed buffers stay in its pools. Not tested: no such device available.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._before: int | None = None  # retries when the window began; None: not inside it
        self._retries = 0
        self._seen = (0, 0)  # the most bytes of tensors, and of all that Metal gave this process
        with suppress(OSError):  # no such file except on Linux; refused to an interpreter with capabilities of its own
            _CLEAR_REFS.write_text(_RESET_PEAK)
        if _has_allocator(device):
            _backend(device).init()  # if the target has not used the device yet, torch 2.11 knows no peaks
            _backend(device).reset_peak_memory_stats(device)

    def step(self) -> None:
        """Note that a step has ended. It costs nothing where the device records peaks itself, and little elsewhere."""
        if self._device.startswith("mps"):
            now = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
            self._seen = max(self._seen[0], now[0]), max(self._seen[1], now[1])

    def phase(self, name: str) -> None:
        """Note that phase `name` begins, and the phase before it ends."""
        self.step()
        if not _has_allocator(self._device):
            return
        retries = int(_backend(self._device).memory_stats(self._device).get("num_alloc_retries", 0))
        if self._before is not None:
            self._retries += retries - self._before
        self._before = retries if name == WINDOW else None

    def read(self) -> MemoryPeak:
        """Return the peaks so far. It takes tens of milliseconds per worker: call it outside the window only.

        Workers that have ended by then are not counted, nor are the peaks of the workers themselves.
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
    """Return the used share of the device's memory, or of its allocator's limit; 1 once an allocation was refused.

    It decides whether a vague fault was one of memory: if the allocator refuses workspace, cuDNN tries one engine after
    the other, finally reports that none works, and by then most of the memory may be free again. None: unknown.
    """
    if not device.startswith("cuda"):
        return None
    try:
        if torch.cuda.memory_stats(device).get("num_ooms", 0):
            return 1.0
        free, total = torch.cuda.mem_get_info(device)
        index = torch.device(device).index  # of "cuda", which is refused here, none: the current one
        allowed = total * torch.cuda.get_per_process_memory_fraction(index)
        return float(max(1 - free / total, torch.cuda.memory_reserved(device) / allowed))
    except (RuntimeError, AssertionError):
        return None  # the context is broken, or there is no such device


def _has_allocator(device: str) -> bool:
    return device.startswith(("cuda", "xpu"))


def _backend(device: str) -> Any:
    """Return `torch.cuda` or `torch.xpu`, which have these functions in more versions than `torch.accelerator`."""
    return torch.cuda if device.startswith("cuda") else torch.xpu


def _peak_resident_bytes() -> int:
    """Return VmHWM; elsewhere `ru_maxrss`, which Linux inherits from the parent (measured: 1.7 GB for `true`)."""
    peak = process_bytes("VmHWM")
    if peak is not None:
        return peak
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def _proportional_bytes(process: psutil.Process, sharers: int) -> int:
    """Return the process's private bytes and its part of those that probe and workers share.

    The plain sum was three times too high. This is not the kernel's PSS, which is smaller if other processes map the
    same files or share the fork server.
    """
    try:
        usage = process.memory_full_info()
    except psutil.Error:
        return 0
    return int(usage.uss + max(0, usage.rss - usage.uss) / sharers)
