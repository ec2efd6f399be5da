"""The names of modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from autotune.targets.live_modules import class_name, named_parts


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


def test_parts_of_several_models_are_named_after_their_classes() -> None:
    one, other, third = nn.Linear(1, 1), nn.Sequential(nn.ReLU()), nn.Linear(1, 1)

    assert named_parts([other]) == {"": other, "0": other[0]}
    assert named_parts([one, other, third]) == {
        "Linear 1": one, "Sequential": other, "Sequential.0": other[0], "Linear 2": third,
    }  # fmt: skip
