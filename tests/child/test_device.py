"""Which GPU a probe takes, and how full it is, on machines with several that are made up here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.cuda._utils import _get_device_index

from autotune.child import device as devices
from autotune.child.memory import MemoryMeter, memory_share
from autotune.child.memory_trace import track_on
from autotune.errors import EnvironmentUnfit
from autotune.failures.classify import NEAR_LIMIT

GIB = 2**30


@pytest.fixture
def made_current(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with two GPUs: those that were made the current one."""
    made: list[str] = []
    for name, answer in {
        "is_available": lambda: True,
        "current_accelerator": lambda: SimpleNamespace(type="cuda"),
        "device_count": lambda: 2,
        "current_device_index": lambda: 0,
        "set_device_index": made.append,
    }.items():
        monkeypatch.setattr(torch.accelerator, name, answer)
    return made


@pytest.mark.parametrize(("asked", "taken"), [("cuda:1", "cuda:1"), ("cuda", "cuda:0"), (None, "cuda:0")])
def test_the_card_that_is_taken_is_the_current_one(made_current: list[str], asked: str | None, taken: str) -> None:
    device = devices.choose_device(asked)

    assert device == taken
    assert made_current == [taken]


def test_neither_the_cpu_nor_a_card_that_is_not_there_becomes_current(made_current: list[str]) -> None:
    device = devices.choose_device("cpu")
    with pytest.raises(EnvironmentUnfit, match="sees 2 cuda devices"):
        devices.choose_device("cuda:2")

    assert device == "cpu"
    assert made_current == []


@pytest.mark.parametrize(
    ("refused", "free", "reserved", "fraction", "is_full"),
    [
        (0, 70, 5, 1.0, False),
        (1, 70, 5, 1.0, True),  # the allocator gave back what it had after a workspace was refused
        (0, 2, 5, 1.0, True),  # others have the rest
        (0, 70, 7, 0.1, True),  # of 8 GiB that it may have
    ],
)
def test_a_card_is_full_where_nothing_more_could_be_had(
    monkeypatch: pytest.MonkeyPatch, refused: int, free: int, reserved: int, fraction: float, is_full: bool
) -> None:
    of_a_card(monkeypatch, refused=refused, free=free, reserved=reserved, fraction=fraction)

    share = memory_share("cuda:0")

    assert share is not None
    assert (share > NEAR_LIMIT) is is_full


def of_a_card(monkeypatch: pytest.MonkeyPatch, *, refused: int, free: int, reserved: int, fraction: float) -> None:
    for name, answer in {
        "memory_stats": {"num_ooms": refused},
        "mem_get_info": (free * GIB, 80 * GIB),
        "memory_reserved": reserved * GIB,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, answer=answer: answer)

    def limit_of(device: str | int | None) -> float:
        if device is not None:
            _get_device_index(device)  # as torch does, which refuses "cuda"
        return fraction

    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", limit_of)


def test_a_card_without_a_number_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    of_a_card(monkeypatch, refused=0, free=40, reserved=5, fraction=1.0)

    assert memory_share("cuda") == 0.5


@pytest.fixture
def of_a_mac(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the made-up Mac's GPU holds now, and the fraction that it was limited to."""
    now: dict[str, Any] = {"current": 0, "driver": 0}
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: now["current"])
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: now["driver"])
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 8 * GIB)
    monkeypatch.setattr(torch.mps, "set_per_process_memory_fraction", lambda share: now.update(fraction=share))
    return now


def test_a_peak_on_a_mac_is_the_most_that_its_gpu_held_and_not_what_the_process_did(of_a_mac: dict[str, Any]) -> None:
    meter = MemoryMeter("mps")
    for of_a_mac["current"], of_a_mac["driver"] in ((GIB, 2 * GIB), (3 * GIB, 5 * GIB), (GIB, 4 * GIB)):
        meter.step()

    peak = meter.read()

    assert (peak.allocated_bytes, peak.reserved_bytes, peak.bytes) == (3 * GIB, 5 * GIB, 5 * GIB)
    own = MemoryMeter("cpu").read().process_bytes  # what tests left in this process may be more than a GiB
    assert peak.process_bytes == pytest.approx(own, rel=0.1)


@pytest.mark.parametrize("at", ["phase", "read"])
def test_what_a_mac_holds_after_the_last_step_counts(of_a_mac: dict[str, Any], at: str) -> None:
    meter = MemoryMeter("mps")
    of_a_mac["driver"] = 6 * GIB
    if at == "phase":
        meter.phase("validate")
        of_a_mac["driver"] = 0

    assert meter.read().bytes == 6 * GIB


def test_what_grows_on_a_mac_is_looked_for_on_its_gpu(of_a_mac: dict[str, Any]) -> None:
    track = track_on("mps")
    of_a_mac["current"] = 7
    track.step()

    assert track.readings == ((0, 7),)


@pytest.mark.parametrize(("limit", "fraction"), [(2 * GIB, 0.25), (8 * GIB, 1.0), (9 * GIB, 1.0)])
def test_a_limit_on_a_mac_is_a_share_of_what_metal_recommends(
    of_a_mac: dict[str, Any], limit: int, fraction: float
) -> None:
    devices.limit_memory("mps", limit)

    assert of_a_mac["fraction"] == fraction


def test_a_limit_that_this_torch_cannot_enforce_is_an_unfit_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.xpu, "set_per_process_memory_fraction", raising=False)

    with pytest.raises(EnvironmentUnfit, match="cannot be enforced on xpu:0"):
        devices.limit_memory("xpu:0", GIB)


def test_a_card_that_does_not_answer_any_more_has_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(device: str) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "mem_get_info", poisoned)

    assert memory_share("cuda:0") is None
    assert memory_share("cpu") is None
