"""What NVML tells of this GPU and what it leaves out, how long a reading takes, and whether it agrees with torch."""

from __future__ import annotations

import os
import time

import torch
from msgspec.structs import asdict

from autotune.machine.nvml import find_gpu, gpus, library, nvml_problem, read_gpu
from benchmarks.questions import NotRun, needs_cuda

READINGS = 50
BUSY_SECONDS = 3.0
SIDE = 8192


def readings(device: str) -> list[str]:
    """Fields that are None, time of a reading, memory, energy against power, and our own process among the others."""
    needs_cuda(device)
    problem, uuid = nvml_problem(), str(torch.cuda.get_device_properties(device).uuid)
    gpu = find_gpu(library(), uuid)
    if problem or gpu is None:
        raise NotRun(problem or f"NVML knows no GPU {uuid}")
    a = torch.randn(SIDE, SIDE, device=device, dtype=torch.bfloat16)
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    listed = next(gpu for gpu in gpus() if gpu.uuid and uuid in gpu.uuid)
    idle = read_gpu(library(), gpu)
    began = time.perf_counter()
    for _ in range(READINGS):
        read_gpu(library(), gpu)
    each = (time.perf_counter() - began) / READINGS
    began, seen = time.perf_counter(), [read_gpu(library(), gpu)]
    while time.perf_counter() - began < BUSY_SECONDS:
        for _ in range(20):
            torch.mm(a, a)
        torch.cuda.synchronize(device)
        seen.append(read_gpu(library(), gpu))
    seconds, last = time.perf_counter() - began, seen[-1]
    lacking = [name for name, value in {**asdict(listed), **asdict(last)}.items() if value is None]
    lines = [
        f"{listed.name}, driver {listed.driver}; None: {', '.join(lacking) or 'no field'}",
        f"a reading takes {1e3 * each:.2f} ms",
        f"total {listed.total_bytes or 0:,}, reserved {listed.reserved_bytes or 0:,}, used {listed.used_bytes or 0:,} "
        f"by NVML; total {total:,}, used {total - free:,} by torch",
        f"busy: utilization {last.utilization}, {last.sm_clock_mhz} of {listed.max_sm_clock_mhz} MHz (idle "
        f"{idle.sm_clock_mhz}), throttled by {', '.join(last.throttle_reasons or ()) or 'nothing'}",
        f"processes: {last.processes}, we are {os.getpid()}",
    ]
    watts = [one.power_watts for one in seen[len(seen) // 4 :] if one.power_watts is not None]
    first = seen[0].energy_joules
    if first is not None and last.energy_joules is not None and watts:
        joules, expected = last.energy_joules - first, sum(watts) / len(watts) * seconds
        lines.append(f"energy counter {joules:.0f} J in {seconds:.1f} s, {joules / expected:.2f} of power × time")
    return lines
