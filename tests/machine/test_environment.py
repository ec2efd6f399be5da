"""This machine against the one of a measurement, and the key of its class."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
import pytest

from autotune.core.records import Environment
from autotune.machine.environment import (
    Gpu,
    _gpu_mismatch,
    _shown,
    autotune_version,
    cpu_name,
    fingerprint,
    mismatches,
    nvml_problem,
    torch_version,
    usable_cores,
)
from autotune.machine.host import cpu_native_dtypes

H200_TOTAL = 150_754_820_096  # as torch tells it; NVML adds what the driver reserves


def here() -> Environment:
    """This machine's CPU."""
    return Environment(
        device="cpu",
        device_name=cpu_name(),
        device_bytes=16 * 2**30,
        native_dtypes=cpu_native_dtypes(),
        torch=torch_version() or "",
        python=platform.python_version(),
        platform="Linux",
        usable_cores=usable_cores(),
        host_bytes=16 * 2**30,
        cpu=cpu_name(),
    )


def on_gpu(name: str = "NVIDIA H200", total: int = H200_TOTAL) -> Environment:
    """This machine with another device."""
    return msgspec.structs.replace(here(), device="cuda:0", device_name=name, device_bytes=total, cuda="13.0")


def test_the_machine_of_the_measurement_has_no_mismatch() -> None:
    assert mismatches(here()) == ()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cpu": "Zeta 9"}, "Zeta 9"),
        ({"usable_cores": 4096}, "4096"),
        ({"native_dtypes": ("float8",)}, "native autocast dtypes were float8"),
        ({"torch": "1.0.0"}, "1.0.0"),
    ],
)
def test_each_difference_is_told_with_both_sides(change: dict[str, str | int], told: str) -> None:
    measured = msgspec.structs.replace(here(), **change)

    (sentence,) = mismatches(measured)

    assert told in sentence
    assert "here" in sentence
    assert sentence.endswith(".")


def test_a_build_that_the_metadata_omits_is_no_difference() -> None:
    measured = msgspec.structs.replace(here(), torch=version("torch").partition("+")[0])

    assert mismatches(measured) == ()


@pytest.mark.skipif(nvml_problem() is None, reason="this machine has an NVIDIA driver")
def test_a_gpu_that_is_gone_is_told_with_the_reason() -> None:
    (sentence,) = mismatches(on_gpu())

    assert "NVIDIA H200 with 140 GiB" in sentence
    assert "NVML" in sentence


@pytest.mark.skipif(platform.system() == "Darwin", reason="this machine is a Mac")
def test_a_mac_is_not_replaced_by_another_machine() -> None:
    measured = msgspec.structs.replace(here(), device="mps", device_name="Apple M4 GPU")

    (sentence,) = mismatches(measured)

    assert "Apple M4 GPU" in sentence


def test_a_gpu_that_torch_cannot_be_asked_about_is_passed_over() -> None:
    measured = msgspec.structs.replace(on_gpu("AMD Instinct MI300X"), cuda=None)

    assert mismatches(measured) == ()


@pytest.mark.parametrize(
    ("gpu", "fits"),
    [
        (Gpu(index=0, name="NVIDIA H200", total_bytes=H200_TOTAL), True),
        (Gpu(index=0, name="NVIDIA H200", total_bytes=int(H200_TOTAL * 1.03)), False),
        (Gpu(index=0, name="NVIDIA H200", total_bytes=int(H200_TOTAL * 1.03), reserved_bytes=4 * 2**30), True),
        (Gpu(index=0, name="NVIDIA H200"), True),  # the driver does not tell
        (Gpu(index=0, name="NVIDIA H100", total_bytes=H200_TOTAL), False),
    ],
)
def test_a_card_fits_by_name_and_by_memory_within_two_percent(gpu: Gpu, fits: bool) -> None:
    sentence = _gpu_mismatch(on_gpu(), (gpu,))

    assert (sentence is None) == fits


def test_one_fitting_card_among_several_is_enough() -> None:
    gpus = (Gpu(index=0, name="NVIDIA T4"), Gpu(index=1, name="NVIDIA H200", total_bytes=H200_TOTAL))

    assert _gpu_mismatch(on_gpu(), gpus) is None


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        (None, [0, 1]),
        ("", []),
        ("-1", []),
        ("GPU-bb", [1]),  # CUDA takes any unique beginning
        ("GPU-bb22, GPU-aa11", [0, 1]),
        ("1", [0, 1]),  # CUDA may count in another order than NVML
    ],
)
def test_cards_are_hidden_only_where_it_is_certain(chosen: str | None, shown: list[int]) -> None:
    gpus = (Gpu(index=0, name="A", uuid="GPU-aa11"), Gpu(index=1, name="B", uuid="GPU-bb22"))

    assert [gpu.index for gpu in _shown(gpus, chosen)] == shown


def test_the_fingerprint_is_readable_and_ends_in_twelve_digits() -> None:
    key = fingerprint(msgspec.structs.replace(on_gpu(), torch="2.13.0+cu130"))

    assert re.fullmatch(r"NVIDIA-H200-torch2\.13\.0-[0-9a-f]{12}", key)


def test_the_fingerprint_of_a_cpu_names_its_cores() -> None:
    environment = msgspec.structs.replace(here(), device_name="Intel(R) Xeon(R) Gold", usable_cores=3, torch="2.13.0")

    assert fingerprint(environment).startswith("Intel-Xeon-Gold-3cores-torch2.13.0-")


@pytest.mark.parametrize(
    "change",
    [{"device": "cuda:3"}, {"device_uuid": "GPU-2"}, {"host_bytes": 1}, {"python": platform.python_version() + "9"}],
)
def test_cards_of_one_class_share_a_fingerprint(change: dict[str, str | int]) -> None:
    assert fingerprint(msgspec.structs.replace(on_gpu(), **change)) == fingerprint(on_gpu())


@pytest.mark.parametrize(
    "change",
    [
        {"device_bytes": H200_TOTAL // 2},
        {"usable_cores": 77},
        {"driver": "1"},
        {"torch": "2.13.0+cu126"},
        {"capability": "9.1"},
        {"nccl": ("NCCL_ALGO=Ring",)},
    ],
)
def test_another_class_has_another_fingerprint(change: dict[str, Any]) -> None:
    assert fingerprint(msgspec.structs.replace(on_gpu(), **change)) != fingerprint(on_gpu())


def test_our_version_is_the_installed_one_and_a_source_tree_on_the_path_says_that_it_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_there(name: str) -> str:
        raise PackageNotFoundError(name)

    assert autotune_version() == version("torch-autotune")

    monkeypatch.setattr("importlib.metadata.version", not_there)

    assert autotune_version() == "uninstalled"


def test_the_torch_version_is_found_without_importing_torch() -> None:
    code = "import sys, autotune.machine.environment as e; assert e.torch_version(); sys.exit('torch' in sys.modules)"

    finished = subprocess.run([sys.executable, "-c", code], check=False)

    assert finished.returncode == 0
