"""A model that runs compiled in place: what is compiled of it, and what stays as it was. Traced, but not generated."""

import copy
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from autotune.targets.checkpointing import checkpoint_blocks
from autotune.targets.compiling import compile_model
from tests.targets.test_checkpointing import Net, _trained

# Dynamo looks at the gradients of all inputs, also of those that have none (torch 2.13).
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


COMPILE = torch.compile


@pytest.fixture(autouse=True)
def traced(monkeypatch):
    """Dynamo traces, and its graphs run as they are: generating code would take a minute."""
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(torch, "compile", partial(COMPILE, backend="eager"))
    yield
    torch._dynamo.reset()


@pytest.fixture
def derived(traced, monkeypatch):
    """The same with backward graphs: what is computed is that of compiled code, in twice the time."""
    monkeypatch.setattr(torch, "compile", partial(COMPILE, backend="aot_eager"))


def graphs():
    """Graphs that were traced since the last look."""
    count = counters["stats"]["unique_graphs"]
    counters.clear()
    return count


def test_a_model_of_torchs_own_classes_is_compiled_too():
    model = compile_model(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))

    model(torch.randn(2, 4))

    assert graphs() == 1


def test_it_stays_the_model_that_it_was():
    plain = Net()
    model = compile_model(copy.deepcopy(plain))

    assert type(model) is Net
    assert list(model.state_dict()) == list(plain.state_dict())
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        copied(torch.randn(2, 4, 6, 6))
        assert graphs() == 0  # a copy runs its own weights, as it is


def test_what_it_computes_stays(derived):
    torch.manual_seed(0)
    plain = Net()
    model = compile_model(copy.deepcopy(plain))

    for one, other in zip(_trained(plain), _trained(model), strict=True):
        torch.testing.assert_close(one, other)
    assert graphs() >= 1


@pytest.mark.parametrize("mode", ["default", "regional"])
def test_recomputed_blocks_are_compiled_and_compute_the_same(mode, derived):
    torch.manual_seed(0)
    plain = Net()
    model = compile_model(checkpoint_blocks(copy.deepcopy(plain)), mode)

    for one, other in zip(_trained(plain), _trained(model), strict=True):
        torch.testing.assert_close(one, other)
    assert graphs() >= 1


class Stack(nn.Module):
    """Layers in a list, one wider than the others."""

    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, width, dropout=0.0, batch_first=True) for width in widths
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_blocks_alike_share_what_is_compiled():
    six, alike = compile_model(Stack([16] * 6), "regional"), torch.randn(2, 3, 8, requires_grad=True)
    six(alike)
    assert graphs() == 1

    two = compile_model(Stack([16, 32, 16, 32]), "regional")
    two(alike)
    assert graphs() == 2


def test_twelve_kinds_of_blocks_are_compiled_each():
    model = compile_model(Stack(range(8, 32, 2)), "regional")  # torch gives up on one function after eight

    model(torch.randn(2, 3, 8, requires_grad=True))

    assert graphs() == 12


class Metric(nn.Module):
    """Computes without parameters, as those of torchmetrics."""

    def forward(self, x):
        return x.mean()


class Lit(nn.Module):
    """A LightningModule: its step may call the parts, and never itself."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"encoder": nn.Linear(4, 4), "decoder": nn.Sequential(nn.Linear(4, 4), nn.ReLU())})
        self.metric = Metric()

    def forward(self, x):
        return self.parts["decoder"](self.parts["encoder"](x))

    def training_step(self, batch, index):
        inside = self.parts["encoder"](batch)
        self.metric(inside)
        return self.parts["decoder"](inside).mean()


def test_of_a_lightning_module_the_parts_are_compiled():
    model = compile_model(Lit())

    model.training_step(torch.randn(2, 4), 0)
    assert graphs() == 2

    model(torch.randn(2, 4))
    assert graphs() == 0  # a step that calls the module runs the same parts


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_scripted_parts_of_a_lightning_module_run_as_they_are():
    model = Lit()
    model.parts["decoder"] = torch.jit.script(model.parts["decoder"])

    compile_model(model).training_step(torch.randn(2, 4), 0).backward()

    assert graphs() == 1  # the encoder's
    assert model.parts["decoder"][0].weight.grad is not None
