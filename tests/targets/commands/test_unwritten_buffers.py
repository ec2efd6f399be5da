"""Only buffers that can be read and hold their own elements are compared, and no other one ends a script."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autotune.targets.commands.watching.unwritten_buffers import UnwrittenBuffers
from autotune.targets.live_modules import left_to_ranks, live_modules, unwrapped
from autotune.targets.ranks.gradient_agreement import explained


class Net(nn.Module):
    """A linear layer with one buffer that no pass reads."""

    def __init__(self, buffer: Tensor) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.register_buffer("one", buffer, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


def _noted(model: nn.Module) -> UnwrittenBuffers:
    buffers = UnwrittenBuffers()
    with buffers.watched():
        model(torch.ones(3, 4))
    return buffers


def _compared(buffers: UnwrittenBuffers, models: Iterable[nn.Module], left_out: Iterable[int] = ()) -> list[str]:
    buffers.choose(models, set(left_out))
    return list(buffers.said())


@pytest.mark.parametrize("made", [torch.arange(8).expand(1, -1), torch.randn(4, 8).t(), torch.randn(8).half()])
def test_what_holds_its_own_elements_is_compared(made):
    model = Net(made)

    assert _compared(_noted(model), [model]) == ["0 Net.one"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(1).expand(40, 40),
        lambda: torch.nested.nested_tensor([torch.randn(3), torch.randn(4)]),
        lambda: torch.quantize_per_tensor(torch.randn(8), 0.1, 0, torch.qint8),
        lambda: torch.eye(4).to_sparse(),
        lambda: torch.empty(4, device="meta"),
    ],
    ids=["expanded", "nested", "quantized", "sparse", "meta"],
)
def test_any_other_is_left_out(make):
    model = Net(make())

    assert _compared(_noted(model), [model]) == []


def test_what_cannot_be_read_where_it_is_met_ends_no_script():
    model, buffers = Net(torch.randn(4)), UnwrittenBuffers()

    def call(one: Tensor) -> Tensor:
        return torch.func.functional_call(model, {"one": one}, torch.ones(3, 4))

    with buffers.watched():  # under vmap a buffer stands for several, of which torch gives no number
        assert torch.vmap(call)(torch.randn(2, 4)).shape == (2, 3, 2)

    assert _compared(buffers, [model]) == []


def test_what_ddp_leaves_to_each_rank_is_not_even_read(monkeypatch):
    read = list[int]()
    monkeypatch.setattr(
        "autotune.targets.commands.watching.unwritten_buffers.tensor_checksum", lambda one: read.append(id(one)) or 0
    )
    model, other = Net(torch.randn(4)), Net(torch.randn(4))
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["one"])

    buffers = _noted(model)

    assert id(model.one) not in read
    assert id(other.one) in read
    assert _compared(buffers, [model, other], left_to_ranks([model, other])) == ["1 Net.one"]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_buffers_of_a_scripted_module_are_compared():
    model = nn.Sequential(nn.Linear(4, 4), torch.jit.script(Net(torch.randn(4))))

    assert _compared(_noted(model), [model]) == ["0 Sequential.1.one"]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_scripted_module_is_unwrapped():
    scripted = torch.jit.script(nn.Linear(4, 2))

    assert unwrapped(scripted) is scripted
    assert unwrapped(nn.DataParallel(scripted)) is scripted


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_an_unused_parameter_of_a_scripted_module_is_told_without_a_line():
    seen = "Expected to have finished reduction in the prior iteration. Parameter indices which did not receive grad "

    error = explained(RuntimeError(f"{seen}for rank 0: 0 1"), nn.Sequential(torch.jit.script(nn.Linear(4, 2))))

    assert str(error).startswith("0.weight, 0.bias got no gradient in a step, and")


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_an_unused_parameter_of_a_model_that_is_scripted_as_a_whole_is_told():
    seen = "Expected to have finished reduction in the prior iteration. Parameter indices which did not receive grad "

    error = explained(RuntimeError(f"{seen}for rank 0: 0 1"), torch.jit.script(Net(torch.randn(4))))

    assert str(error).startswith("head.weight, head.bias got no gradient in a step, and")


def test_a_module_that_is_not_made_yet_is_none_of_the_live_ones():
    unmade = nn.Linear.__new__(nn.Linear)
    model = Net(torch.randn(4))

    assert _compared(_noted(model), [model]) == ["0 Net.one"]
    assert all(one is not unmade for one in live_modules())
