"""The checks of `autotune doctor`: from facts to notices, one for each line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Environment
from autotune.core.results import Inspection
from autotune.knobs import KNOBS
from autotune.machine.environment import visible_gpus
from autotune.machine.host import host_memory, shared_memory_bytes
from autotune.machine.interference import interference_between, read_counters
from autotune.machine.nvml import Gpu, deprecated_pynvml, gpus, nvml_problem
from autotune.report.blocks import Check, CheckState

LITTLE_SHARED_MEMORY = 256 * 2**20  # Docker's default is 64 MiB; a few batches of images per worker fill it
BUSY_SHARE = 0.1  # of the usable cores: a probe computes on all of them, and is slower by as much
TOO_BUSY_SHARE = 0.5  # of them: a probe then shares every core, and its rate depends mainly on the others
SAMPLE_SECONDS = 1.0  # in ticks of 10 ms, which err by 1 %
STATES: Mapping[Code, CheckState] = {  # of others: advice if the code has a next step, else good
    Code.DEVICE_UNUSABLE: "bad",
    Code.DEVICE_UNKNOWN: "bad",
    Code.COMPILER_MISSING: "absent",
    Code.CORES_SHARED: "busy",
    Code.CORES_TAKEN: "bad",
    Code.NVML_UNUSED: "absent",
}


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
    here, failure = inspection.environment, inspection.failure
    if here is None:
        found = notice(Code.DEVICE_UNUSABLE, error=failure.message) if failure else notice(Code.DEVICE_UNKNOWN)
        return [_check("device", found), *_gpus()]
    return [
        _check("device", _device(here)),
        _check("torch", _torch(here, chosen)),
        _check("autocast", _autocast(here)),
        *_knobs(here, computing=True),
        _check("cores", _cores(here.usable_cores, foreign())),
        _check("host memory", _host_memory()),
        *_knobs(here, computing=False),
        *_shared_memory(),
        *_starting(inspection, fork_server_bytes),
        *_gpus(),
    ]


def _check(name: str, found: Notice) -> Check:
    return Check(
        name=name,
        text=found.meaning,
        state=STATES.get(found.code, "advice" if found.next_step else "good"),
        advice=found.next_step,
        code=found.code,
        numbers=found.numbers,
    )


def _device(here: Environment) -> Notice:
    return notice(Code.DEVICE_FOUND, device=here.device, device_name=here.device_name, device_bytes=here.device_bytes)


def _torch(here: Environment, chosen: bool) -> Notice:
    gpus = visible_gpus() if here.device == "cpu" and not chosen else ()
    if not here.cuda:
        code = Code.GPU_NEEDS_CUDA_BUILD if gpus else Code.TORCH_WITHOUT_CUDA
        return notice(code, torch=here.torch, python=here.python)
    code, driver = (Code.GPU_DRIVER_TOO_OLD, gpus[0].driver) if gpus else (Code.TORCH_WITH_CUDA, None)
    return notice(code, torch=here.torch, cuda=here.cuda, python=here.python, driver=driver)


def _autocast(here: Environment) -> Notice:
    native = here.native_dtypes
    return notice(Code.NATIVE_DTYPES, native_dtypes=native) if native else notice(Code.NO_NATIVE_DTYPES)


def _knobs(here: Environment, *, computing: bool) -> list[Check]:
    """Return what the knobs say of the machine: those that change only the device's computing, or all others."""
    offers = [(knob.alias, knob.offer(here)) for knob in KNOBS if knob.only_computes == computing]
    return [_check(alias, offer) for alias, offer in offers if offer is not None]


def _cores(usable: int, foreign: float | None) -> Notice:
    if foreign is None:  # as outside of Linux: the average of a minute, in which our own inspection counts
        foreign = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    busy = Code.CORES_SHARED if foreign > BUSY_SHARE * usable else Code.CORES_FREE
    code = Code.CORES_TAKEN if foreign > TOO_BUSY_SHARE * usable else busy
    return notice(code, usable_cores=usable, foreign_cores=foreign)


def _host_memory() -> Notice:
    memory = host_memory()
    return notice(
        Code.HOST_MEMORY, available_bytes=memory.available_bytes, total_bytes=memory.total_bytes,
        limit_source=memory.limit_source,
    )  # fmt: skip


def _shared_memory() -> list[Check]:
    free = shared_memory_bytes()
    if free is None:
        return []
    code = Code.SHARED_MEMORY if free >= LITTLE_SHARED_MEMORY else Code.SHARED_MEMORY_SMALL
    return [_check("/dev/shm", notice(code, free_bytes=free))]


def _starting(inspection: Inspection, fork_server_bytes: int) -> list[Check]:
    if inspection.isolation is None:
        return []
    found = notice(Code.PROBES_FORKED, fork_server_bytes=fork_server_bytes)
    if inspection.isolation == "fresh":
        found = notice(Code.PROBES_FRESH, reason=inspection.isolation_reason)
    return [_check("probes", found)]


def _gpus() -> list[Check]:
    checks = [_check(f"GPU {gpu.index}", _gpu(gpu)) for gpu in gpus()]
    problem, old = nvml_problem(), deprecated_pynvml()
    if problem and not checks:
        checks.append(_check("NVML", notice(Code.NVML_UNUSED, error=problem)))
    if old:
        checks.append(_check("pynvml", notice(Code.PYNVML_DEPRECATED, version=old)))
    return checks


def _gpu(gpu: Gpu) -> Notice:
    """Return the readings of a GPU; what the driver does not give is left out."""
    processes = None if gpu.processes is None else len(gpu.processes)
    reasons = gpu.throttle_reasons or None
    return notice(
        Code.GPU_IN_USE if processes or reasons else Code.GPU_FREE, gpu=gpu.name, driver=gpu.driver,
        used_bytes=gpu.used_bytes, total_bytes=gpu.total_bytes, processes=processes, throttle_reasons=reasons,
    )  # fmt: skip
