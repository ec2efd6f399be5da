"""The reading of one GPU, from a library that answers everything, little, or nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.machine.nvml import Gpu, GpuProcess, deprecated_pynvml, gpus, nvml_problem, read


class NotSupported(Exception):
    """Stands for `pynvml.NVMLError_NotSupported`."""


class Driver:
    """The few functions of pynvml that a GPU needs to be told at all; everything else is absent."""

    NVML_CLOCK_SM = 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802  # NVML's own names
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return b"GPU"  # pynvml before 11.5 answers in bytes


class Talkative(Driver):
    """A GPU that tells everything, under a driver from before the event reasons."""

    nvmlMemory_v2 = 2  # noqa: N815

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=100, reserved=5, used=30, free=65),
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=7, usedGpuMemory=None)],
            "nvmlDeviceGetClockInfo": 1500,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlSystemGetDriverVersion": "470.1",
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x1 | 0x4 | 0x40,
        }
        if name not in answers:
            raise AttributeError(name)
        return lambda *_: answers[name]


def test_a_process_that_kept_the_library_open_ends_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(
        "import os\nclass NVMLError(Exception): pass\ndef nvmlInit(): pass\ndef nvmlShutdown(): os.write(2, b'shut')\n"
    )
    imported = "from autotune.machine.nvml import library"
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {imported}; print(library())"

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "pynvml.py" in ended.stdout
    assert ended.stderr == ""


def test_a_card_that_tells_only_its_name_has_none_elsewhere() -> None:
    assert read(Driver(), 3) == Gpu(index=3, name="GPU")


def test_a_card_that_tells_everything_is_read_in_full() -> None:
    expected = Gpu(
        index=0,
        name="GPU",
        uuid="GPU-1",
        driver="470.1",
        total_bytes=100,
        reserved_bytes=5,
        used_bytes=30,
        processes=(GpuProcess(pid=7, used_bytes=None),),
        max_sm_clock_mhz=1980,
        throttle_reasons=("power cap", "hardware thermal slowdown"),
    )

    assert read(Talkative(), 0) == expected


def test_an_old_driver_without_the_second_memory_struct_still_tells_the_total() -> None:
    class Old(Talkative):
        def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> Any:  # noqa: N802
            if version is not None:
                raise NotSupported
            return SimpleNamespace(total=100, used=35, free=65)

    gpu = read(Old(), 0)

    assert gpu is not None
    assert (gpu.total_bytes, gpu.reserved_bytes, gpu.used_bytes) == (100, None, 35)


def test_a_lost_card_is_left_out() -> None:
    class Lost(Driver):
        def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
            raise NotSupported

    assert read(Lost(), 0) is None


def test_either_there_are_cards_to_read_or_a_reason_why_not() -> None:
    problem = nvml_problem()

    assert gpus() == () if problem else gpus() != ()
    assert problem is None or problem.startswith("NVML")


def test_the_deprecated_distribution_is_found(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "pynvml-11.5.3.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: pynvml\nVersion: 11.5.3\n")

    monkeypatch.syspath_prepend(str(tmp_path))

    assert deprecated_pynvml() == "11.5.3"
