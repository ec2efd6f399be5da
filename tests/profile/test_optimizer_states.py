"""What optimizers would keep, held against those that torch has."""

import pytest
import torch
from torch import nn

from autotune.profile.optimizer_states import state_bytes

MODEL = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 300), nn.Conv2d(8, 16, 3), nn.LayerNorm(64))
SHAPES = [(tuple(one.shape), one.element_size()) for one in MODEL.parameters()]


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("SGD", lambda parameters: torch.optim.SGD(parameters, lr=0.1)),
        ("momentum", lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)),
        ("Adam", torch.optim.Adam),
        ("Adam", torch.optim.AdamW),
        ("Adafactor", torch.optim.Adafactor),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_state_is_what_torch_keeps_but_for_counters_of_steps(name, optimizer, dtype):
    parameters = [nn.Parameter(one.detach().to(dtype)) for one in MODEL.parameters()]
    made = optimizer(parameters)
    for one in parameters:
        one.grad = torch.ones_like(one)

    made.step()

    kept = [one for state in made.state.values() for key, one in state.items() if key != "step" and one is not None]
    said = state_bytes([(tuple(one.shape), one.element_size()) for one in parameters])
    assert said[name] == sum(one.numel() * one.element_size() for one in kept)


def test_eight_bit_adam_keeps_two_bytes_and_scales_of_blocks_and_float32_for_small_parameters():
    assert state_bytes([((1000, 256), 4)])["8-bit Adam"] == 2 * (256_000 + 4 * 1000)
    assert state_bytes([((64,), 4)])["8-bit Adam"] == 2 * 4 * 64


def test_all_are_there():
    assert list(state_bytes(SHAPES)) == ["SGD", "momentum", "Adam", "Adafactor", "8-bit Adam"]
