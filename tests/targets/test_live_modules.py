"""The names by which modules are told."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from autotune.targets.live_modules import class_name


class Net(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.filterwarnings("ignore:.torch.jit.script")
def test_a_scripted_module_has_the_name_of_the_users_class() -> None:
    assert class_name(torch.jit.script(Net())) == class_name(Net()) == "Net"


def test_a_compiled_module_has_the_name_of_the_users_class() -> None:
    assert class_name(torch.compile(Net(), backend="eager")) == "Net"


def test_a_sharded_module_has_the_name_of_the_users_class() -> None:
    class FSDPModule:
        """What torch's own marks a sharded module with."""

    sharded = type("FSDPNet", (FSDPModule, Net), {})

    assert class_name(sharded()) == "Net"
