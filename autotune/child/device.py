"""The device of a probe: its choice, its capabilities, and its memory limit."""

from __future__ import annotations

import os
import platform
import resource
import sys

import torch

from autotune.core.records import Environment
from autotune.errors import EnvironmentUnfit
from autotune.knobs import allocator, malloc
from autotune.machine import host as machine
from autotune.machine import nvml
from autotune.machine.compilers import missing_for_compiling
from autotune.machine.host import USABLE_FRACTION, process_bytes
from autotune.targets import allocators
from autotune.targets.commands.distributed import device_of_rank, world_size
from autotune.targets.ranks import world

STACK_BYTES = 64 * 8 * 2**20  # of 64 threads, 8 MiB each (glibc), of which 16 KiB are ever touched (measured)
FLOAT16_CAPABILITY = (7, 0)  # tensor cores; before Volta float16 autocast is no faster (CUDA C programming guide)


def choose_device(name: str | None) -> str:
    """Return the device to use: `name` if it is given, else the accelerator if there is one, else the CPU.

    If there are several GPUs, the chosen one becomes the current one: torch's events, its thread that pins batches and
    a bare `.cuda()` in the user's code use it, and would otherwise open a context on the first GPU and time its idle
    stream. A rank of a launcher has the GPU of its number. Raises `EnvironmentUnfit` if the device is not there.
    """
    device = _found(name)
    if device_of_rank(device) != device:
        device = _found(device_of_rank(device))
    if ":" in device:
        torch.accelerator.set_device_index(device)
    return device


def _found(name: str | None) -> str:
    present = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name is None:
        return "cpu" if present is None else _indexed(present.type)
    try:
        asked = torch.device(name)
    except RuntimeError as error:
        raise EnvironmentUnfit(
            f"{name!r} is not a device that torch {torch.__version__} knows. The name was probably mistyped. "
            f"Use --device cpu, cuda, cuda:1, mps or xpu."
        ) from error
    if asked.type == "cpu":
        return "cpu"
    count = torch.accelerator.device_count() if present is not None and present.type == asked.type else 0
    if (asked.index or 0) >= count:
        raise EnvironmentUnfit(
            f"There is no {name}: torch {torch.__version__} sees {count} {asked.type} devices here. The driver, the "
            f"build of torch or CUDA_VISIBLE_DEVICES hides it. `autotune doctor` without --device says what "
            f"there is. Or use --device cpu."
        )
    return name if asked.index is not None else _indexed(asked.type)


def describe(device: str) -> Environment:
    """Return the hardware and versions on which a measurement on `device` depends."""
    host = machine.host_memory()
    kind = device.partition(":")[0]
    name, total, capability, uuid = machine.cpu_name(), host.total_bytes, None, None
    if kind == "cuda":
        facts = torch.cuda.get_device_properties(device)
        name, total, capability = facts.name, facts.total_memory, f"{facts.major}.{facts.minor}"
        uuid = str(getattr(facts, "uuid", "")) or None
    elif kind == "xpu":
        gpu = torch.xpu.get_device_properties(device)
        name, total = gpu.name, gpu.total_memory
    elif kind == "mps":
        name, total = f"{machine.cpu_name()} GPU", torch.mps.recommended_max_memory()
    gpus = nvml.gpus() if kind == "cuda" else ()
    of_ranks = kind == "cuda" and max(world.world().size, world_size()) > 1
    return Environment(
        device=device,
        device_name=name,
        device_bytes=total,
        native_dtypes=native_dtypes(device),
        torch=str(torch.__version__),  # a subclass of str that JSON does not know
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.release().partition('-')[0]}",
        usable_cores=machine.usable_cores(),
        host_bytes=host.total_bytes,
        shm_bytes=machine.shared_memory_bytes(),
        cpu=machine.cpu_name(),
        cuda=torch.version.cuda,
        driver=gpus[0].driver if gpus else None,
        device_uuid=uuid,
        capability=capability,
        default_threads=torch.get_num_threads(),
        omp_wait_policy=os.environ.get("OMP_WAIT_POLICY") or None,
        mallocs=allocators.available(),
        variables=tuple(name for name in (*malloc.VARIABLES, *allocator.VARIABLES) if os.environ.get(name)),
        nccl=tuple(f"{name}={os.environ[name]}" for name in world.nccl_variables()) if of_ranks else (),
        no_compiler=missing_for_compiling(kind, capability),
    )


def native_dtypes(device: str) -> tuple[str, ...]:
    """Return the autocast dtypes that the hardware computes natively; emulated ones are slower than float32."""
    kind = device.partition(":")[0]
    if kind == "cpu":
        return machine.cpu_native_dtypes()
    if kind == "cuda":
        bfloat16 = bool(torch.cuda.is_bf16_supported(including_emulation=False))
        float16 = torch.cuda.get_device_capability(device) >= FLOAT16_CAPABILITY
        return ("bfloat16",) * bfloat16 + ("float16",) * float16
    if kind == "xpu":  # not tested: no such device available
        return ("bfloat16",) * bool(torch.xpu.is_bf16_supported()) + ("float16",)
    return ("float16",) if kind == "mps" else ()  # not tested: no such device available


def limit_memory(device: str, limit_bytes: int | None) -> None:
    """Make allocations beyond `limit_bytes` really fail: in the caching allocator, or in the kernel for the CPU.

    Raises `EnvironmentUnfit` where nothing can enforce it.
    """
    if limit_bytes is None:
        return
    kind = device.partition(":")[0]
    if kind == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)
    elif kind == "mps":  # not tested: no such device available
        torch.mps.set_per_process_memory_fraction(min(1.0, limit_bytes / torch.mps.recommended_max_memory()))
    elif kind == "xpu" and hasattr(torch.xpu, "set_per_process_memory_fraction"):  # not tested, either
        total = torch.xpu.get_device_properties(device).total_memory
        torch.xpu.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)
    elif kind == "cpu" and sys.platform == "linux":
        _limit_data(limit_bytes)
    else:
        raise EnvironmentUnfit(
            f"A memory limit cannot be enforced on {device} under {sys.platform}. Neither this torch nor the kernel "
            f"offers one there. Search without --memory-limit."
        )


def _limit_data(limit_bytes: int) -> None:
    """Make the kernel refuse memory far beyond `limit_bytes` to this process and, by inheritance, its loader workers.

    RLIMIT_DATA counts private writable mappings, touched or not, so the limit is raised by the mappings that are
    untouched now and by stacks of later threads. If this allows too much, the launcher ends the probe (`Monitor`)
    before the machine runs out. (RLIMIT_AS would count what is only reserved, gigabytes under CUDA.)
    """
    _start_threads()
    mapped, touched = process_bytes("VmData"), process_bytes("RssAnon")
    if mapped is None or touched is None:  # a kernel without /proc
        mapped = touched = 0
    grows = min(limit_bytes - touched + STACK_BYTES, int(machine.host_memory().available_bytes * USABLE_FRACTION))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    ceiling = mapped + max(0, grows)
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling if hard == resource.RLIM_INFINITY else min(ceiling, hard), hard))


def synchronize(device: str) -> None:
    """Wait until the device has done all issued work; on the CPU return at once."""
    if not device.startswith("cpu"):
        torch.accelerator.synchronize(device)


def _start_threads() -> None:
    """Make OpenMP start its threads while there is memory for their stacks: if it cannot, it aborts the process."""
    torch.ones(1 << 20).mul_(2).sum()


def _indexed(kind: str) -> str:
    return kind if kind == "mps" else f"{kind}:{torch.accelerator.current_device_index()}"
