"""The machine compared with the one of a measurement, and its class as a key; never imports torch."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re

from autotune.core.records import Environment
from autotune.machine.host import cpu_name, cpu_native_dtypes, usable_cores
from autotune.machine.nvml import VISIBLE_DEVICES, Gpu, gpus, installed_version, nvml_problem
from autotune.units import format_bytes

# A GPU's total differs by up to 0.1 % between drivers, and by far more from that of the next smaller product.
MEMORY_TOLERANCE = 0.02


def autotune_version() -> str:
    """Return the installed version of autotune; `uninstalled` if its source is on the path without a distribution."""
    return installed_version("torch-autotune") or "uninstalled"


def torch_version() -> str | None:
    """Return the installed version of torch, found without importing it; None if there is none."""
    return installed_version("torch")


def mismatches(measured: Environment) -> tuple[str, ...]:
    """Return how this machine differs from `measured` in what decides speed or memory; empty if it does not.

    One visible GPU that agrees is enough: which one a later process uses cannot be known without torch. AMD and Intel
    GPUs are not compared, for the same reason.
    """
    found: list[str | None]
    match measured.device_kind:
        case "cuda" if measured.cuda is not None:  # without it torch is built for AMD, whose GPUs NVML does not list
            found = [_gpu_mismatch(measured, visible_gpus())]
        case "cpu":
            found = [_cpu_mismatch(measured), _cores_mismatch(measured), _dtypes_mismatch(measured)]
        case "mps" if platform.system() != "Darwin":
            found = [f"Measured on {measured.device_name} (mps), which this machine, no Mac, cannot have."]
        case _:
            found = []
    return tuple(sentence for sentence in (*found, _torch_mismatch(measured)) if sentence)


def visible_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA would show to a process started here, if `CUDA_VISIBLE_DEVICES` can be interpreted.

    Entries by UUID are matched; of entries by index only "none" is understood, because CUDA may count in another order.
    """
    return _shown(gpus(), os.environ.get(VISIBLE_DEVICES))


def fingerprint(environment: Environment) -> str:
    """Return the class of machines with comparable measurements, as `NVIDIA-H200-torch2.13.0-3fa1c2d4e5f6`.

    It is a readable prefix and 12 hexadecimal digits of a SHA-256 over all fields of the record that change speed or
    memory limits. The identity of a GPU (index, UUID) is left out, because GPUs vary within a class, by 8 % in the mean
    (Sinha et al., SC'22). So is the amount of host memory of a machine with a GPU. Not covered: power limit, ECC and
    clocks, which the record lacks.
    """
    on_cpu = environment.device_kind == "cpu"
    # The kernel reserves a share of the host's memory that differs from boot to boot; a GPU's total is constant.
    unit = 2**30 if on_cpu else 2**20
    key = {
        "kind": environment.device_kind,
        "name": environment.device_name,
        "memory": round(environment.device_bytes / unit),
        "capability": environment.capability,
        "dtypes": sorted(environment.native_dtypes),
        "cpu": environment.cpu,
        "cores": environment.usable_cores,
        "torch": environment.torch,
        "cuda": environment.cuda,
        "driver": environment.driver,
        "python": environment.python.split(".")[:2],
        **({"nccl": environment.nccl} if environment.nccl else {}),
    }
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    name = re.sub(r"\(R\)|\(TM\)|[^A-Za-z0-9]+", "-", environment.device_name)
    name = re.sub("-+", "-", name).strip("-") or environment.device_kind
    cores = f"-{environment.usable_cores}cores" if on_cpu else ""
    return f"{name}{cores}-torch{_public(environment.torch)}-{digest}"


def _shown(gpus: tuple[Gpu, ...], chosen: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that remain visible with `chosen`, the value of `CUDA_VISIBLE_DEVICES`."""
    if chosen is None:
        return gpus
    entries = [entry.strip() for entry in chosen.split(",")]
    if entries[0] in ("", "-1", "NoDevFiles"):
        return ()
    if all(entry.startswith("GPU-") for entry in entries):
        return tuple(gpu for gpu in gpus if gpu.uuid is not None and gpu.uuid.startswith(tuple(entries)))
    return gpus


def _gpu_mismatch(measured: Environment, gpus: tuple[Gpu, ...]) -> str | None:
    there = f"{measured.device_name} with {format_bytes(measured.device_bytes)}"
    if not gpus:
        reason = nvml_problem() or "CUDA_VISIBLE_DEVICES hides all, or there is none."
        return f"Measured on {there}; no NVIDIA GPU is visible here: {reason}"
    if any(gpu.name == measured.device_name and _same_memory(gpu, measured.device_bytes) for gpu in gpus):
        return None
    names = ", ".join(sorted({f"{gpu.name} with {format_bytes(gpu.total_bytes)}" for gpu in gpus}))
    return f"Measured on {there}; here it is {names}."


def _same_memory(gpu: Gpu, device_bytes: int) -> bool:
    """Return whether the totals agree with or without the driver's reserve: CUDA omits it, old drivers hide it."""
    if gpu.total_bytes is None:
        return True
    totals = (gpu.total_bytes, gpu.total_bytes - (gpu.reserved_bytes or 0))
    return any(abs(total - device_bytes) <= MEMORY_TOLERANCE * device_bytes for total in totals)


def _cpu_mismatch(measured: Environment) -> str | None:
    here = cpu_name()
    there = measured.cpu or measured.device_name
    return None if here == there else f"Measured on the CPU {there}; here it is {here}."


def _cores_mismatch(measured: Environment) -> str | None:
    here = usable_cores()
    if here == measured.usable_cores:
        return None
    return f"Measured with {measured.usable_cores} usable cores; here there are {here}."


def _dtypes_mismatch(measured: Environment) -> str | None:
    """Processors of one name may differ in it: `AMD EPYC` is that of several models in virtual machines."""
    there, here = (" and ".join(sorted(each)) or "none" for each in (measured.native_dtypes, cpu_native_dtypes()))
    if there == here:
        return None
    return f"Measured where the processor's native autocast dtypes were {there}; here: {here}."


def _torch_mismatch(measured: Environment) -> str | None:
    here = torch_version()
    if here is None:
        return f"Measured with torch {measured.torch}; here no torch is installed."
    # Wheels of torch omit the build ("+cu130") in the metadata that is read here, but not in `torch.__version__`.
    builds = [version.partition("+")[2] for version in (here, measured.torch)]
    if _public(here) == _public(measured.torch) and (not all(builds) or builds[0] == builds[1]):
        return None
    return f"Measured with torch {measured.torch}; here it is torch {here}."


def _public(version: str) -> str:
    """Return a version without its build."""
    return version.partition("+")[0]
