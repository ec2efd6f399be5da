"""The checks of `autotune doctor`: from facts to lines with advice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from autotune.core.records import Environment
from autotune.core.results import Inspection
from autotune.knobs import malloc
from autotune.machine.compilers import compiler_of
from autotune.machine.environment import visible_gpus
from autotune.machine.host import host_memory, shared_memory_bytes
from autotune.machine.interference import interference_between, read_counters
from autotune.machine.nvml import Gpu, deprecated_pynvml, gpus, nvml_problem
from autotune.report.blocks import Check
from autotune.units import format_bytes

LITTLE_SHARED_MEMORY = 256 * 2**20  # Docker's default is 64 MiB; a few batches of images per worker fill it
BUSY_SHARE = 0.1  # of the usable cores: a probe computes on all of them, and is slower by as much
TOO_BUSY_SHARE = 0.5  # of them: a probe then shares every core, and its rate depends mainly on the others
ADVICE = {  # where torch.compile lacks something, by kind of device
    "cpu": "Install a C++ compiler and Python's headers (Debian: apt install g++ python3-dev), or say CXX=/path/g++.",
    "cuda": "Install triton and a C compiler (pip install triton; Debian: apt install gcc python3-dev).",
}
SAMPLE_SECONDS = 1.0  # in ticks of 10 ms, which err by 1 %


def measure_foreign_cores() -> float | None:
    """Return the number of cores that others keep busy, measured for a second; None: unknown on this system."""
    before = read_counters()
    time.sleep(SAMPLE_SECONDS)
    return interference_between(before, read_counters()).foreign_cores


def examine(
    inspection: Inspection, *, chosen: bool = False, fork_server_bytes: int = 0,
    foreign: Callable[[], float | None] = measure_foreign_cores,
) -> list[Check]:  # fmt: skip
    """Return all checks of a machine; the inspection was made without a target. `chosen`: the user chose the device.

    `fork_server_bytes` is the memory of the fork server; `foreign` returns the number of cores that others keep busy.
    """
    here = inspection.environment
    if here is None:
        message = inspection.failure.message if inspection.failure else "the probe process left no word"
        return [Check(name="device", text=message, state="bad"), *_gpus()]
    memory, native = host_memory(), ", ".join(here.native_dtypes) or "none besides float32"
    available = f"{format_bytes(memory.available_bytes)} of {format_bytes(memory.total_bytes)} available"
    return [
        Check(name="device", text=f"{here.device}: {here.device_name}, {format_bytes(here.device_bytes)}"),
        _torch(here, chosen),
        Check(name="autocast", text=f"computed natively: {native}"),
        _compiling(here),
        _cores(here.usable_cores, foreign()),
        Check(name="host memory", text=f"{available} ({memory.limit_source})"),
        *_malloc(here),
        *_shared_memory(),
        *_starting(inspection, fork_server_bytes),
        *_gpus(),
    ]


def _torch(here: Environment, chosen: bool) -> Check:
    build = f"CUDA {here.cuda}" if here.cuda else "no CUDA"
    text = f"{here.torch} ({build}), Python {here.python}"
    gpus = visible_gpus() if here.device == "cpu" and not chosen else ()
    if not gpus:
        return Check(name="torch", text=text)
    advice = "There is an NVIDIA GPU, but this torch was built without CUDA: install a CUDA build."
    if here.cuda:
        advice = (
            f"There is an NVIDIA GPU, but torch cannot use it: driver {gpus[0].driver} is probably too old for CUDA "
            f"{here.cuda}. Update it, or install an older build; python -c 'import torch; torch.cuda.init()' says why."
        )
    return Check(name="torch", text=text, state="advice", advice=advice)


def _compiling(here: Environment) -> Check:
    if not here.no_compiler:
        return Check(name="compile", text=f"torch.compile with {compiler_of(here.device_kind)}")
    text = f"compile_mode is not offered: {here.no_compiler}"
    if here.device_kind not in ADVICE:
        return Check(name="compile", text=text, state="absent")
    return Check(name="compile", text=text, state="advice", advice=ADVICE[here.device_kind])


def _cores(usable: int, foreign: float | None) -> Check:
    if foreign is None:  # as outside of Linux: the average of a minute, in which our own inspection counts
        foreign = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    text = f"{usable} usable, {foreign:.1f} kept busy by others"
    if foreign > TOO_BUSY_SHARE * usable:
        return Check(name="cores", text=text, state="bad", advice="Wait until other work has ended, or end it.")
    if foreign > BUSY_SHARE * usable:
        advice = "Probes would wait for them: speeds come out too low and too noisy. Wait until other work has ended."
        return Check(name="cores", text=text, state="busy", advice=advice)
    return Check(name="cores", text=text)


def _malloc(here: Environment) -> list[Check]:
    """Return a check with the values of the knob `malloc` on this machine."""
    if here.device != "cpu" or not (here.mallocs or here.variables):
        return []
    if own := [name for name in malloc.VARIABLES if name in here.variables]:
        return [Check(name=malloc.Malloc.name, text=f"not tuned: your environment sets {', '.join(own)}")]
    missing = [library for name, library in malloc.LIBRARIES.items() if name not in here.mallocs]
    absent = f"; not installed: {', '.join(missing)}" if missing else ""
    return [Check(name=malloc.Malloc.name, text=f"can be tuned: {', '.join(here.mallocs)}{absent}")]


def _shared_memory() -> list[Check]:
    free = shared_memory_bytes()
    if free is None:
        return []
    text = f"{format_bytes(free)} free"
    if free >= LITTLE_SHARED_MEMORY:
        return [Check(name="/dev/shm", text=text)]
    advice = "Loader workers pass batches through it. In Docker start with --shm-size=8g or --ipc=host."
    return [Check(name="/dev/shm", text=text, state="advice", advice=advice)]


def _starting(inspection: Inspection, fork_server_bytes: int) -> list[Check]:
    if inspection.isolation is None:
        return []
    text = f"forked from a process of {format_bytes(fork_server_bytes)} that has torch imported"
    if inspection.isolation == "fresh":
        text = f"fresh processes: {inspection.isolation_reason}"
    return [Check(name="probes", text=text)]


def _gpus() -> list[Check]:
    checks = [_gpu(gpu) for gpu in gpus()]
    problem, old = nvml_problem(), deprecated_pynvml()
    if problem and not checks:
        checks.append(Check(name="NVML", text=f"not used: {problem}", state="absent"))
    if old:
        checks.append(Check(name="pynvml", text="the deprecated distribution is installed", state="advice", advice=old))
    return checks


def _gpu(gpu: Gpu) -> Check:
    others = len(gpu.processes or ())
    used = f"{format_bytes(gpu.used_bytes)} of {format_bytes(gpu.total_bytes)} used"
    throttled = f", slowed by {', '.join(gpu.throttle_reasons)}" if gpu.throttle_reasons else ""
    name, text = f"GPU {gpu.index}", f"{gpu.name}, driver {gpu.driver}, {used}, {others} processes{throttled}"
    if not others and not throttled:
        return Check(name=name, text=text)
    advice = "Another tenant or a power limit makes measurements noise: choose another --device."
    return Check(name=name, text=text, state="advice", advice=advice)
