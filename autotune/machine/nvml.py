"""The NVIDIA driver's view of its GPUs, through NVML; never raises, and uses no CUDA context.

The library is `pynvml`, installed by the distribution `nvidia-ml-py`. A reading that this GPU, driver or permission
does not offer is None, never 0. Order and index are NVML's (by PCI bus), which `CUDA_VISIBLE_DEVICES` may rearrange:
match by `uuid`. Not covered: MIG instances (the GPU is listed, its slices are not).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from autotune.core.records import Record

# Bits of `nvmlClocksEventReasons` (nvml.h, driver 580). Idle (0x1) and the user's own clock settings (0x2, 0x100) are
# left out: they do not slow down a running kernel unexpectedly.
_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "synchronised with a slower GPU",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"  # environment variable: the GPUs that CUDA shows to a process
_SAMPLE_SECONDS = 1.0  # the longest sample period of a GPU (nvml.h, on utilization)
_NO_SAMPLES = (0, 6)  # NVML_SUCCESS without samples, NVML_ERROR_NOT_FOUND: no process computed


class GpuProcess(Record, frozen=True, kw_only=True):
    """A process that computes on a GPU; inside a container, `pid` is the host's number for it."""

    pid: int
    used_bytes: int | None


class Gpu(Record, frozen=True, kw_only=True):
    """One NVIDIA GPU at one moment."""

    index: int
    name: str
    uuid: str | None = None
    driver: str | None = None
    total_bytes: int | None = None  # as sold; `total - reserved` is what CUDA calls total
    reserved_bytes: int | None = None  # kept by the driver for itself
    used_bytes: int | None = None  # by all processes, without the reserved part
    processes: tuple[GpuProcess, ...] | None = None
    max_sm_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None  # empty if it runs at full speed


class GpuReading(Record, frozen=True, kw_only=True):
    """The changing readings of a GPU; they take well under a millisecond if the driver is loaded."""

    utilization: float | None = None  # share of the GPU's last sample period (1/6 to 1 s) with any kernel, 0..1
    used_bytes: int | None = None
    power_watts: float | None = None
    energy_joules: float | None = None  # since the driver was loaded (Volta and later)
    sm_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    processes: tuple[int, ...] | None = None  # that hold a compute context
    computing: tuple[tuple[int, float], ...] | None = None  # those that ran kernels lately, and their share of time


def gpus() -> tuple[Gpu, ...]:
    """Return the NVIDIA GPUs of this machine; empty if there are none or NVML cannot be used."""
    try:
        with _opened() as nvml:
            count = nvml.nvmlDeviceGetCount()
            return tuple(gpu for gpu in (read(nvml, index) for index in range(count)) if gpu is not None)
    except _Unusable:
        return ()


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, which is not imported; None if there is none."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None


def nvml_problem() -> str | None:
    """Return why NVML cannot be used, in a sentence; None if it can."""
    try:
        with _opened():
            return None
    except _Unusable as problem:
        return str(problem)


def deprecated_pynvml() -> str | None:
    """Return the version of the distribution `pynvml`, which `autotune doctor` advises to remove; None: not installed.

    Its version 13 makes `import torch` warn, and fail under `-W error`; 12 downgrades nvidia-ml-py; 11 shadows it.
    """
    return installed_version("pynvml")


def read(nvml: Any, index: int) -> Gpu | None:
    """Return one GPU as an initialised `nvml` library reads it; None if handle or name are refused (a lost GPU)."""
    handle = ask(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    name = ask(lambda: nvml.nvmlDeviceGetName(handle))
    if handle is None or name is None:
        return None
    memory = _memory(nvml, handle)
    return Gpu(
        index=index,
        name=_text(name),
        uuid=_text(ask(lambda: nvml.nvmlDeviceGetUUID(handle))),
        driver=_text(ask(lambda: nvml.nvmlSystemGetDriverVersion())),
        total_bytes=getattr(memory, "total", None),
        reserved_bytes=getattr(memory, "reserved", None),
        used_bytes=getattr(memory, "used", None),
        processes=_processes(ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))),
        max_sm_clock_mhz=ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
        throttle_reasons=_throttling(nvml, handle),
    )


@functools.cache
def library() -> Any | None:
    """Return the library, initialised once for the life of this process; None if it cannot be used."""
    try:
        return _initialised()  # never shut down, which would invalidate the handles
    except _Unusable:
        return None


def find_gpu(nvml: Any, uuid: str | None) -> Any | None:
    """Return the handle of the GPU with that UUID, as torch or NVML write it; None if there is none."""
    if nvml is None or not uuid:
        return None
    names = (uuid,) if uuid.startswith(("GPU-", "MIG-")) else (f"GPU-{uuid}", f"MIG-{uuid}")
    found = (ask(functools.partial(nvml.nvmlDeviceGetHandleByUUID, name)) for name in names)
    return next((gpu for gpu in found if gpu is not None), None)


def read_gpu(nvml: Any, handle: Any) -> GpuReading:
    """Return the readings of a GPU that change with time."""
    percent = ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    milliwatts = ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    millijoules = ask(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
    processes = _processes(ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)))
    return GpuReading(
        utilization=None if percent is None else percent / 100,
        used_bytes=getattr(_memory(nvml, handle), "used", None),
        power_watts=None if milliwatts is None else milliwatts / 1000,
        energy_joules=None if millijoules is None else millijoules / 1000,
        sm_clock_mhz=ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        throttle_reasons=_throttling(nvml, handle),
        processes=None if processes is None else tuple(process.pid for process in processes),
        computing=_computing(nvml, handle),
    )


def ask(question: Callable[[], Any]) -> Any:
    """Return the library's answer, or None for whatever it cannot answer."""
    # Old drivers and shadowed libraries raise AttributeError and a mismatch error that is not an NVMLError.
    with contextlib.suppress(Exception):
        return question()
    return None


class _Unusable(Exception):
    """Raised if NVML is absent or does not start."""


@contextlib.contextmanager
def _opened() -> Iterator[Any]:
    """Yield the library between its init and its shutdown (it counts them, so nesting is safe)."""
    pynvml = _initialised()
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise _Unusable(f"NVML, the NVIDIA driver's library, stopped answering: {error}.") from error
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _initialised() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # doctor reports what it warns of
            import pynvml
        pynvml.nvmlInit()
    except Exception as error:
        raise _Unusable(f"NVML, the NVIDIA driver's library, cannot be used: {error}.") from error
    return pynvml


def _memory(nvml: Any, handle: Any) -> Any:
    """Return the amounts of memory. Old drivers know only the first version of the call, which adds their own share."""
    return ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)) or ask(
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle)
    )


def _computing(nvml: Any, handle: Any) -> tuple[tuple[int, float], ...] | None:
    """Return each process's latest share of time with a kernel of its own, 0..1; without those that ran none."""
    since = int((time.time() - _SAMPLE_SECONDS) * 1e6)
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, since)
    except Exception as error:
        return () if getattr(error, "value", None) in _NO_SAMPLES else None
    # Some drivers return samples that are old, or above 100 %.
    return tuple((one.pid, one.smUtil / 100) for one in samples if one.timeStamp >= since and 0 < one.smUtil <= 100)


def _throttling(nvml: Any, handle: Any) -> tuple[str, ...] | None:
    """Return the reasons that the driver gives for a lower clock; None if it reports none at all."""
    bits = ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if bits is None:  # the name of the call before driver 535
        bits = ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    return None if bits is None else tuple(reason for bit, reason in _REASONS.items() if bits & bit)


def _processes(listed: Any) -> tuple[GpuProcess, ...] | None:
    if listed is None:
        return None
    return tuple(GpuProcess(pid=entry.pid, used_bytes=entry.usedGpuMemory) for entry in listed)


def _text(answer: Any) -> Any:
    """Return an answer as text: older releases of the library return bytes."""
    return answer.decode() if isinstance(answer, bytes) else answer
