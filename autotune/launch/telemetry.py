"""Watches one GPU through NVML while a probe measures on it: utilization, memory, power, clocks, and other processes.

    phase "measure" begins ──► a thread reads, five times a second ──► the phase ends ──► one last reading, a summary

This runs in the searching process, because there it needs no interpreter lock of the probe's and survives the probe.
NVML makes no CUDA context. The GPU is found by UUID: CUDA and NVML count GPUs differently, and CUDA_VISIBLE_DEVICES
rearranges those of CUDA.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from autotune.core.interference_readings import GpuUse
from autotune.core.stats import mean_of_known
from autotune.machine.nvml import GpuReading, read_gpu

PHASE = "measure"
PERIOD_SECONDS = 0.2  # a GPU updates its utilization in 1/6 to 1 s, its energy counter in 0.1 s (docs/notes/gpu.md 1)
LAST_READING_SECONDS = 2.0  # to wait for it: a call into the driver of a lost GPU may never return


class Telemetry:
    """The readings of one probe. `is_own` returns whether a process belongs to it."""

    def __init__(self, nvml: Any, gpu: Any, is_own: Callable[[int], bool]) -> None:
        """Read the `gpu` before the probe exists: any process that computes on it now is foreign."""
        self._nvml, self._gpu, self._is_own = nvml, gpu, is_own
        self._before = set(read_gpu(nvml, gpu).processes or ())
        self._readings: list[GpuReading] = []
        self._own: set[int] = set()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def phase(self, name: str) -> None:
        """Note that phase `name` of the probe begins. Never waits."""
        if name == PHASE and self._thread is None:
            self._thread = threading.Thread(target=self._read, name="autotune-telemetry", daemon=True)
            self._thread.start()
        elif name != PHASE:
            self.stop()

    def stop(self) -> None:
        """Read no more than the reading that ends the window, if one has begun."""
        if self._thread is not None:
            self._over.set()

    def use(self) -> GpuUse | None:
        """Return the use that was seen, after `stop`; None if the probe did not reach its measuring."""
        if self._thread is None:
            return None
        self._thread.join(LAST_READING_SECONDS)
        return summary(tuple(self._readings), self._before, self._own)

    def _read(self) -> None:
        while True:
            is_last = self._over.is_set()
            reading = read_gpu(self._nvml, self._gpu)
            self._own |= {pid for pid in reading.processes or () if pid not in self._own and self._is_own(pid)}
            self._readings.append(reading)
            if is_last:
                return
            self._over.wait(PERIOD_SECONDS)


def summary(readings: Sequence[GpuReading], before: set[int], own: set[int]) -> GpuUse | None:
    """Return the readings of a window in one record; None without any.

    Processes of `before`, which were on the GPU before the probe existed, are foreign. Others are foreign only if one
    of them is the probe's `own`: then NVML's process ids are comparable with those of this machine. In a container NVML
    reports the ids of the host, none is the probe's own, and of the processes that came with the probe it is unknown
    which one is the probe: none of those counts as foreign.
    """
    if not readings:
        return None
    seen = {pid for reading in readings for pid in reading.processes or ()} - {os.getpid()}
    foreign = seen - own if own else seen & before
    computed = [r.computing for r in readings if r.computing is not None]
    energies = [r.energy_joules for r in readings if r.energy_joules is not None]
    clocks = [r.sm_clock_mhz for r in readings if r.sm_clock_mhz is not None]
    return GpuUse(
        readings=len(readings),
        utilization=mean_of_known([r.utilization for r in readings]),
        used_bytes=max((r.used_bytes for r in readings if r.used_bytes is not None), default=None),
        power_watts=mean_of_known([r.power_watts for r in readings]),
        energy_joules=energies[-1] - energies[0] if len(energies) > 1 else None,
        sm_clock_mhz=(min(clocks), max(clocks)) if clocks else None,
        throttle_reasons=tuple(dict.fromkeys(reason for r in readings for reason in r.throttle_reasons or ())),
        foreign_processes=tuple(sorted(foreign)),
        foreign_share=mean_of_known([sum(share for pid, share in those if pid in foreign) for those in computed]),
    )
