"""The host's resources for this process: cores, memory, shared memory, CPU arithmetic.

A container sees the whole machine in `/proc` and may use a part of it. So each amount here is the smallest of what is
installed, what affinity allows, and what any control group above the process allows:

    /sys/fs/cgroup/cpu/a/b   ──►  /sys/fs/cgroup/cpu/a  ──►  /sys/fs/cgroup/cpu     each level may set its own limit

`root` stands for `/`; a test passes a folder of its own. On other systems than Linux the files are absent and only the
operating system's totals remain. Not covered: swap, NUMA, huge pages.
"""

from __future__ import annotations

import math
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psutil

from autotune.core.records import Record

ROOT = Path("/")
CORES = "_AUTOTUNE_CORES"  # environment variable of a probe: how many cores its launcher may use
USABLE_FRACTION = 0.95  # of the memory available now: beyond it the kernel kills processes, not only the probe
LimitSource = Literal["physical memory", "cgroup v1", "cgroup v2"]
# The processor computes in the dtype itself if it has one of the alternatives, each a set of flags that belong
# together. AVX512-BF16 and AMX: Intel's instruction set reference; bf16: Linux `Documentation/arch/arm64`. Not
# avx512_fp16: a processor that has it trained digits_cnn in float16 at 25 samples/s against 1,600 in float32
# (decisions/0010); nor ARM's asimdhp, which was not measured. `--amp fp16` uses float16 all the same.
_NATIVE: dict[str, tuple[frozenset[str], ...]] = {
    "bfloat16": (frozenset({"amx_bf16"}), frozenset({"avx512_bf16"}), frozenset({"bf16"})),
    "float16": (frozenset({"amx_fp16"}),),
}


class HostMemory(Record, frozen=True, kw_only=True):
    """Memory of the host, or the part of it that a control group grants."""

    total_bytes: int
    available_bytes: int  # without swapping; page cache that can be dropped counts as available
    limit_source: LimitSource


def usable_cores(root: Path = ROOT) -> int:
    """Return how many cores this process may use: the smaller of affinity and CPU quota, rounded up, at least 1.

    Where OMP_PROC_BIND or the like is set, libgomp binds the main thread to one core when torch is imported: so a probe
    is told in `CORES` how many its launcher may use.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = max(allowed, int(os.environ.get(CORES, 0)))
    quotas = [math.ceil(quota) for quota in _cpu_quotas(root)]
    return max(1, min(allowed, *quotas)) if quotas else allowed


def host_memory(root: Path = ROOT) -> HostMemory:
    """Return the memory that this process and its children may take together."""
    machine = psutil.virtual_memory()
    total, available = machine.total, machine.available
    source: LimitSource = "physical memory"
    for limit, free, version in _memory_limits(root):
        if limit < total:
            total, source = limit, version
        available = min(available, free)
    return HostMemory(total_bytes=total, available_bytes=max(0, available), limit_source=source)


def process_bytes(*lines: str, pid: int | None = None, root: Path = ROOT) -> int | None:
    """Return the sum, in bytes, of these lines of `/proc/PID/status`, such as VmRSS; None if the kernel has none.

    `pid` None is this process.
    """
    text = _text(root / "proc" / str(pid or "self") / "status") or ""
    pairs = (line.partition(":") for line in text.splitlines())
    found = [int(amount.split()[0]) * 1024 for name, _, amount in pairs if name in lines]  # "VmRSS:   4096 kB"
    return sum(found) if len(found) == len(lines) else None


def disk_bytes_read(root: Path = ROOT) -> int | None:
    """Return the bytes that were read from disks for this process so far; None if the kernel does not report them."""
    found = _entry(root / "proc/self/io", "read_bytes")
    return int(found) if found else None


def shared_memory_bytes(root: Path = ROOT) -> int | None:
    """Return the free bytes of `/dev/shm`, through which workers pass their batches; None if there is none."""
    try:
        return shutil.disk_usage(root / "dev/shm").free
    except OSError:
        return None


def cpu_name(root: Path = ROOT) -> str:
    """Return the processor's own name, or its architecture if it reports none (ARM, macOS)."""
    return _entry(root / "proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def cpu_native_dtypes(root: Path = ROOT) -> tuple[str, ...]:
    """Return the autocast dtypes that the CPU computes in; others are emulated and slower. Empty if unknown."""
    flags = frozenset((_entry(root / "proc/cpuinfo", "flags") or _entry(root / "proc/cpuinfo", "Features")).split())
    return tuple(dtype for dtype, alternatives in _NATIVE.items() if any(need <= flags for need in alternatives))


def _cpu_quotas(root: Path) -> Iterator[float]:
    """Yield the limit in cores at each level that sets one."""
    for folder in _levels(root, None):
        quota, _, period = (_text(folder / "cpu.max") or "max").partition(" ")
        if quota != "max":
            yield int(quota) / int(period)
    for folder in _levels(root, "cpu"):
        spent, interval = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        if spent and interval and spent > 0:  # -1: no limit
            yield spent / interval


def _memory_limits(root: Path) -> Iterator[tuple[int, int, LimitSource]]:
    """Yield the limit, what is left of it, both in bytes, and its source, at each level that sets one.

    Version 1 writes "no limit" as a number near 2**63, which no machine's total exceeds.
    """
    for folder in _levels(root, None):
        limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
        if limit is not None:
            yield limit, limit - (used or 0) + _page_cache(folder, "inactive_file"), "cgroup v2"
    for folder in _levels(root, "memory"):
        limit, used = _number(folder / "memory.limit_in_bytes"), _number(folder / "memory.usage_in_bytes")
        if limit is not None:
            yield limit, limit - (used or 0) + _page_cache(folder, "total_inactive_file"), "cgroup v1"


def _page_cache(folder: Path, key: str) -> int:
    """Return the bytes that count as used although the kernel would reclaim them first."""
    return int(_entry(folder / "memory.stat", key, " ") or 0)


def _levels(root: Path, controller: str | None) -> Iterator[Path]:
    """Yield the folders of the control group of this process and of all above it; `controller` None means version 2.

    A container often sees the path that it has outside, but mounts its own group as the top: levels that do not exist
    are left out.
    """
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller is None and controllers == "":
            tops = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]  # the second if both versions are mounted
        elif controller is not None and controller in controllers.split(","):
            tops = [root / "sys/fs/cgroup" / controller]
        else:
            continue
        for top in tops:
            own = top / path.lstrip("/")
            yield from (level for level in (own, *own.parents) if level.is_relative_to(top) and level.is_dir())


def _number(path: Path) -> int | None:
    """Return the number in a file; None if it is absent or says `max`."""
    text = _text(path)
    return None if text is None or text == "max" else int(text)


def _entry(path: Path, key: str, separator: str = ":") -> str:
    """Return the first value of `key` in a file with one key per line; empty if there is none."""
    lines = (line.partition(separator) for line in (_text(path) or "").splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == key), "")


def _text(path: Path) -> str | None:
    """Return the content of a small kernel file, or None if it is absent or may not be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None
