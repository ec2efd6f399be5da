"""Dropout that draws the same masks in every dtype. Patched as for CUDA, and run on the CPU; the GPU's: `tests/gpu`."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from autotune.targets.paired_dropout import paired_dropout

ONES = torch.ones(64, 64)


def _dropped(dtype, probability=0.25):
    torch.manual_seed(1)
    with paired_dropout("cuda:0"):
        return nn.Dropout(probability)(ONES.to(dtype))


def test_masks_are_those_of_float32_in_every_dtype():
    places = [_dropped(dtype) == 0 for dtype in (torch.float32, torch.bfloat16, torch.float16)]

    assert torch.equal(places[0], places[1])
    assert torch.equal(places[0], places[2])


def test_a_quarter_is_dropped_and_the_rest_makes_up_for_it():
    found = _dropped(torch.float32)

    assert (found == 0).float().mean() == pytest.approx(0.25, abs=0.03)
    assert found[found != 0].unique().item() == pytest.approx(4 / 3)


def test_gradients_are_dropped_where_values_are():
    values = ONES.clone().requires_grad_()
    with paired_dropout("cuda:0"):
        dropped = functional.dropout(values, 0.5)
    dropped.sum().backward()

    assert torch.equal(values.grad, dropped.detach())


def test_in_place_changes_the_input_itself():
    values = ONES.clone()
    with paired_dropout("cuda:0"):
        dropped = functional.dropout(values, 0.5, inplace=True)

    assert dropped is values
    assert (values == 0).any()


@pytest.mark.parametrize(("probability", "expected"), [(0.0, 1.0), (1.0, 0.0)])
def test_all_or_nothing_is_torchs_own(probability, expected):
    assert torch.equal(_dropped(torch.float32, probability), torch.full_like(ONES, expected))


def test_attention_drops_nothing_also_inside_a_layer_of_torch():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 16, dropout=0.5, batch_first=True)
    for part in layer.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0  # what is left is attention's own
    inputs = torch.randn(2, 8, 16)
    with paired_dropout("cuda:0"):
        one, other = layer(inputs), layer(inputs)

    assert torch.equal(one, other)
    assert not torch.equal(layer(inputs), layer(inputs))


class Attending(nn.Module):
    """Attention and dropout, as a scripted model calls them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5), 0.5)


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("model", [Attending, lambda: nn.TransformerEncoderLayer(16, 2, 16)], ids=["own", "torch's"])
def test_a_scripted_model_runs_by_torchs_own_functions_and_nothing_else_does(model):
    inputs = torch.randn(2, 8, 16)
    with paired_dropout("cuda:0"):
        within = torch.jit.script(model())(inputs)
        during = functional.dropout
    assert within.isfinite().all()
    assert during is not functional.dropout  # ours were back after scripting


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_are_torchs_own():
    with paired_dropout("cuda:0"):
        dropped = functional.dropout(torch.nested.nested_tensor([torch.ones(3), torch.ones(5)]), 0.5)

    assert dropped.is_nested


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_afterwards_and_on_a_cpu_all_is_torchs_own(device):
    own = functional.dropout, functional.scaled_dot_product_attention
    with paired_dropout(device):
        during = functional.dropout, functional.scaled_dot_product_attention

    assert (during == own) == (device == "cpu")
    assert (functional.dropout, functional.scaled_dot_product_attention) == own
