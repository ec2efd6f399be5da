"""Cores and memory: the machine as a container, a control group or nothing at all leaves it."""

from __future__ import annotations

import math
import os
from pathlib import Path

import psutil
import pytest

from autotune.machine.host import (
    cpu_name,
    cpu_native_dtypes,
    host_memory,
    process_bytes,
    shared_memory_bytes,
    usable_cores,
)

NO_LIMIT_V1 = "9223372036854771712"
MIB = 2**20


def machine(root: Path, files: dict[str, str]) -> Path:
    """A root folder that holds `files`."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return root


def test_without_control_groups_all_cores_of_the_affinity_are_usable(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("quota", "cores"), [("50000 100000", 1), ("100000 100000", 1), ("100001 100000", 2)])
def test_a_cpu_quota_is_rounded_up_and_never_zero(tmp_path: Path, quota: str, cores: int) -> None:
    root = machine(tmp_path, {"proc/self/cgroup": "0::/job", "sys/fs/cgroup/job/cpu.max": quota})

    usable = usable_cores(root)

    assert usable == min(cores, len(os.sched_getaffinity(0)))


def test_a_quota_above_the_affinity_grants_nothing(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "99900000 100000"})

    assert usable_cores(root) == len(os.sched_getaffinity(0))


def test_the_quota_of_a_parent_group_holds_for_its_children(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/slice/job",
        "sys/fs/cgroup/slice/cpu.max": "100000 100000",
        "sys/fs/cgroup/slice/job/cpu.max": "max 100000",
    }

    assert usable_cores(machine(tmp_path, files)) == 1


def test_a_version_one_quota_is_read_and_minus_one_is_none(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "2:cpu,cpuacct:/job\n1:name=systemd:/",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "30000",
        "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
    }

    assert usable_cores(machine(tmp_path, files)) == 1


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        pytest.param(
            "4:memory:/docker/abc", {"memory/memory.limit_in_bytes": 100}, {"total_bytes": 100 * MIB,
            "limit_source": "cgroup v1"}, id="a container that sees its outer path still finds its own limit",
        ),
        pytest.param(
            "0::/\n4:memory:/",
            {"memory.max": "max", "memory/memory.limit_in_bytes": NO_LIMIT_V1, "memory/memory.usage_in_bytes": "1000"},
            {"total_bytes": psutil.virtual_memory().total, "limit_source": "physical memory"},
            id="the machine without a limit has its physical memory",
        ),
        pytest.param(
            "0::/job",
            {"job/memory.max": 100, "job/memory.current": 90,
             "job/memory.stat": f"anon 1\ninactive_file {50 * MIB}\nactive_file 2"},
            {"total_bytes": 100 * MIB, "available_bytes": 60 * MIB},
            id="droppable page cache of a control group counts as available",
        ),
        pytest.param(
            "0::/slice/job",
            {"slice/memory.max": 80, "slice/memory.current": 79,
             "slice/job/memory.max": 40, "slice/job/memory.current": 10},
            {"total_bytes": 40 * MIB, "available_bytes": MIB},
            id="the tightest level decides what is available",
        ),
    ],
)  # fmt: skip
def test_memory_is_what_control_groups_grant(
    tmp_path: Path, group: str, files: dict[str, int | str], expected: dict[str, int | str]
) -> None:
    """Numbers in `files` are MiB."""
    written = {name: str(value * MIB) if isinstance(value, int) else value for name, value in files.items()}
    groups = {f"sys/fs/cgroup/{name}": content for name, content in written.items()}

    memory = host_memory(machine(tmp_path, {"proc/self/cgroup": group, **groups}))

    assert {name: getattr(memory, name) for name in expected} == expected


def test_amounts_of_a_process_are_added_up_and_unknown_unless_all_are_told(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/7/status": "Name:\tpython\nVmRSS:\t    12 kB\nRssAnon:\t     8 kB\n"})

    assert process_bytes("VmRSS", "RssAnon", pid=7, root=root) == 20 * 1024
    assert process_bytes("VmRSS", "RssShmem", pid=7, root=root) is None
    assert process_bytes("VmRSS", pid=8, root=root) is None


def test_shared_memory_is_unknown_where_there_is_none(tmp_path: Path) -> None:
    assert shared_memory_bytes(tmp_path) is None


@pytest.mark.parametrize(
    ("line", "dtypes"),
    [
        ("flags : fpu avx512f avx512_bf16", ("bfloat16",)),
        ("flags : fpu amx_bf16 amx_tile avx512_fp16", ("bfloat16",)),
        ("flags : fpu amx_bf16 amx_fp16 amx_tile", ("bfloat16", "float16")),
        ("flags : fpu avx2 f16c", ()),  # f16c only converts
        ("Features : fp asimd fphp asimdhp bf16", ("bfloat16",)),
        ("Features : fp asimd fphp", ()),
        ("processor : 0", ()),
    ],
)
def test_only_dtypes_with_arithmetic_of_their_own_are_native(tmp_path: Path, line: str, dtypes: tuple[str]) -> None:
    root = machine(tmp_path, {"proc/cpuinfo": f"processor : 0\n{line}"})

    assert cpu_native_dtypes(root) == dtypes


def test_the_processor_is_called_by_its_model_name(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/cpuinfo": "vendor_id\t: X\nmodel name\t: Zeta 9: turbo\nmodel name\t: other"})

    assert cpu_name(root) == "Zeta 9: turbo"


def test_a_processor_without_a_model_name_is_called_by_its_architecture(tmp_path: Path) -> None:
    assert cpu_name(tmp_path) != ""


def test_this_machine_reads_as_a_machine() -> None:
    memory = host_memory()

    assert 1 <= usable_cores() <= (os.cpu_count() or math.inf)
    assert 0 < memory.available_bytes <= memory.total_bytes <= psutil.virtual_memory().total
