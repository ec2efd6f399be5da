"""The memory budget of compiled graphs: what they keep for the backward pass, and that they compute the same."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
import torch
import torch._functorch.config as functorch
from torch import nn

from autotune.errors import TargetError
from autotune.knobs import knob, plan_of
from autotune.knobs.observed import Observed
from autotune.targets.base import check_effect
from autotune.targets.model_facts import model_facts
from autotune.targets.switches import standing
from tests.targets_support import inspect, start, watch
from tests.worlds import config

# Code of torch that the partitioner imports (torch 2.13).
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")

BUDGET = knob("activation_memory_budget")
COMPILE = torch.compile


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Graphs are derived and partitioned, and run as they are: generating code would take a minute."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(COMPILE, backend="aot_eager_decomp_partition"))
    with functorch.patch(activation_memory_budget=1.0):
        yield
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # else later tests of this process are taken to have compiled


def _trained(budget) -> tuple[int, torch.Tensor]:
    """Return the bytes that a compiled forward pass keeps, and the gradient of its first weight."""
    for prepare in plan_of(config(compile_mode="default", activation_memory_budget=budget), "cpu").setup:
        prepare()
    torch._dynamo.reset()
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))]
    model, kept = nn.Sequential(*layers), dict[int, int]()
    call = torch.compile(lambda batch: model(batch).square().mean())

    def note(saved: torch.Tensor) -> torch.Tensor:
        kept[saved.untyped_storage().data_ptr()] = saved.untyped_storage().nbytes()
        return saved

    with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        loss = call(torch.randn(256, 64))
    loss.backward()
    return sum(kept.values()), model[0].weight.grad


def test_a_smaller_share_keeps_less_and_computes_the_same():
    kept, gradient = _trained(None)
    half, same = _trained(0.5)
    quarter, _ = _trained(0.25)

    assert quarter < half < kept
    assert torch.allclose(gradient, same, rtol=1e-4, atol=1e-7)


def test_what_stands_is_seen():
    assert BUDGET.seen(Observed(**standing([]))) == (None,)

    for prepare in plan_of(config(compile_mode="default", activation_memory_budget=0.25), "cpu").setup:
        prepare()

    observed = Observed(**standing([]))
    assert BUDGET.seen(observed) == (0.25,)
    assert BUDGET.found(observed) == 0.25
    assert BUDGET.seen(Observed(kept_activations=0.4)) == (None,)  # a share that the user's code chose: none was asked


def test_a_process_that_never_compiled_has_torchs_own():
    code = (
        "import sys, autotune.targets.switches as one; sys.modules.pop('torch._functorch.config', None); "
        "print(one.standing([])['kept_activations'])"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1.0\n"


OWN = """
import torch
from torch import nn
def model(): return {}
def batch(batch_size): return torch.randn(batch_size, 4)
def loss(model, batch): return model(batch).mean()
"""


# A model of torch.compile's has a `len()` that raises (torch 2.13).
@pytest.mark.parametrize(("model", "compiles"), [("torch.compile(nn.Linear(4, 2))", True), ("nn.Linear(4, 2)", False)])
def test_a_model_that_is_compiled_by_the_users_code_is_known_to_be(tmp_path, model, compiles):
    facts = inspect(tmp_path, OWN.format(model))

    assert (facts.compiles_itself, facts.compiles_model) == (compiles, compiles)
    assert facts.name == "Linear"
    assert (facts.step.seconds is None) is compiles  # compiling takes most of that step, and of no other
    assert (facts.optimizer.step_share is None) is compiles
    assert (f"{facts.name}, 10 parameters") in [one.text for one in facts.check_lines]


def test_a_model_of_which_the_users_code_compiles_a_part_is_known_to_be_compiled():
    model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2))
    before = model_facts(model)
    model[1].compile()

    assert (before["compiles_model"], model_facts(model)["compiles_model"]) == (False, True)


def test_what_the_baseline_has_compiled_is_not_the_users_code(tmp_path):
    facts = inspect(tmp_path, OWN.format("nn.Linear(4, 2)"), config(batch_size=8, compile_mode="default"))

    assert not facts.compiles_itself
    assert not facts.compiles_model
    assert facts.step.seconds is None


def test_a_share_that_the_code_has_in_place_of_what_was_asked_for_is_an_error(tmp_path):
    own = OWN.replace("    return", "").replace(
        "def model(): return", "def model():\n    own.activation_memory_budget = 0.6\n    return"
    )
    asked = {"batch_size": 8, "compile_mode": "default", "activation_memory_budget": 0.5}
    session = start(tmp_path, "import torch._functorch.config as own\n" + own.format("nn.Linear(4, 2)"), **asked)
    session.train(watch(1))

    with pytest.raises(TargetError, match="50% of the activations"):
        check_effect(session, config(**asked).values)
