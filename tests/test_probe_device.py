"""Which card a probe takes, and how full it is, on machines with several that are made up here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from autotune.errors import EnvironmentUnfit
from autotune.failures import NEAR_LIMIT
from autotune.probe import device as devices
from autotune.probe.memory import memory_share

GIB = 2**30


@pytest.fixture
def made_current(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with two cards: those that were made the current one."""
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
    device = devices.choose(asked)

    assert device == taken
    assert made_current == [taken]


def test_neither_the_cpu_nor_a_card_that_is_not_there_becomes_current(made_current: list[str]) -> None:
    device = devices.choose("cpu")
    with pytest.raises(EnvironmentUnfit, match="sees 2 cuda devices"):
        devices.choose("cuda:2")

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
    for name, answer in {
        "memory_stats": {"num_ooms": refused},
        "mem_get_info": (free * GIB, 80 * GIB),
        "memory_reserved": reserved * GIB,
        "get_per_process_memory_fraction": fraction,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, answer=answer: answer)

    share = memory_share("cuda:0")

    assert share is not None
    assert (share > NEAR_LIMIT) is is_full


def test_a_card_that_does_not_answer_any_more_has_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(device: str) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "mem_get_info", poisoned)

    assert memory_share("cuda:0") is None
    assert memory_share("cpu") is None
