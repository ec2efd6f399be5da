"""Blocks that are computed again on a real CUDA device: the same gradients, random numbers of the device included."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from autotune.targets.checkpointing import checkpoint_blocks


class Block(nn.Module):
    """Its only tensor comes by name, where torch does not look for devices."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.5), nn.Linear(256, 64))

    def forward(self, *, x: torch.Tensor) -> torch.Tensor:
        return x + self.inside(x)


class Net(nn.Module):
    """Eight blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x=x)
        return x


def _trained(model: nn.Module) -> tuple[list[torch.Tensor], int]:
    """Gradients, and bytes at the peak besides what was there."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.manual_seed(1)
    model(torch.randn(4096, 64, device="cuda")).square().mean().backward()
    peak = torch.cuda.max_memory_allocated() - before
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None], peak


POLICIES: tuple[tuple[dict[str, Any], float], ...] = (
    ({}, 0.5), ({"every": 2}, 0.8), ({"every": 3}, 0.9), ({"selective": True}, 0.9)
)  # fmt: skip


@pytest.mark.parametrize(("policy", "kept"), POLICIES, ids=str)
def test_dropout_is_replayed_and_memory_falls(policy: dict[str, Any], kept: float) -> None:
    plain = Net().cuda()
    checkpointed = checkpoint_blocks(copy.deepcopy(plain), **policy)
    _trained(copy.deepcopy(plain))  # whoever multiplies first pays for the workspaces of cuBLAS

    (expected, much), (found, little) = _trained(plain), _trained(checkpointed)

    torch.testing.assert_close(found, expected)
    assert little < kept * much
