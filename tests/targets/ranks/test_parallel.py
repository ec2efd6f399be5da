"""Two ranks learn what one process learns from the batches of both; what keeps them from it is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ranks import on_ranks

pytestmark = pytest.mark.slow
# The batches of a rank are every second sample: those of both together are the batch of one process.
TARGET = """
import os, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
torch.manual_seed(0)
inputs, targets = torch.randn(96, 6), torch.randn(96, 3)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
    def forward(self, x): return x + self.norm(torch.relu(self.inner(x)))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.blocks, self.last = nn.Linear(6, 8), nn.ModuleList(Block() for _ in range(3)), nn.Linear(8, 3)
        self.weight_of_loss = 2.0
    def forward(self, x):
        x = self.first(x)
        for block in self.blocks: x = block(x)
        return self.last(x)
def model():
    torch.manual_seed(1)
    return Net()
def dataloader(batch_size, num_workers):
    data = TensorDataset(inputs[rank::size], targets[rank::size])
    return DataLoader(data, batch_size, shuffle=False, drop_last=True)
def loss(model, batch): return model.weight_of_loss * nn.functional.mse_loss(model(batch[0]), batch[1])
def optimizer(params): return torch.optim.AdamW(params, lr=0.01)
"""
STEP_LINE = TARGET.count("\n") + 2  # the first line of what is added to the file, behind a newline
LEARN = """
def learned(text="", steps=3, **values):
    training = start(HERE, TARGET + text, **{"batch_size": 8 * 2 // SIZE, **values})
    training.train(watch(steps))
    tensors = [one.full_tensor() if hasattr(one, "full_tensor") else one for one in training.model.parameters()]
    return torch.cat([one.detach().flatten() for one in tensors]).tolist()
def tried(name, **options):
    try: tell(**{name: learned(**options)})
    except TargetError as error: tell(**{name: str(error).replace(f"rank{RANK}/", "")})
"""
STRATEGIES = (None, "zero2", "fsdp")


def _told(folder: Path, code: str, size: int = 2) -> list[dict]:  # type: ignore[type-arg]
    return on_ranks(folder, f"TARGET = {TARGET!r}\n{LEARN}{code}", size)


def _difference(one: list[float], other: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def _check_learned(first: dict[str, Any], second: dict[str, Any], alone: dict[str, Any]) -> None:
    """Both ranks learned the same in each case, `name strategy`, and what one process learns."""
    for case, values in first.items():
        name = case.partition(" ")[0]
        assert values == second[case], case
        assert not isinstance(values, str), (case, values)
        assert _difference(values, alone[f"{name} None"]) < (1e-2 if name == "bf16" else 1e-5), case


def test_the_update_of_two_ranks_is_that_of_one_process_with_the_batches_of_both(tmp_path: Path) -> None:
    code = """
cases = {
    "plain": {},
    "accumulated": {"gradient_accumulation_steps": 3},
    "checkpointed": {"activation_checkpointing": True},
    "bf16": {"amp_dtype": "bfloat16"},
    "clipped": {"text": "clip_grad_norm = 0.01"},
    "fused": {"fused_optimizer": "fused"},
}
for strategy in (None, "zero2", "fsdp") if SIZE > 1 else (None,):
    for name, options in cases.items():
        tried(f"{name} {strategy}", strategy=strategy, **options)
"""
    (alone,) = _told(tmp_path, code, size=1)
    first, second = _told(tmp_path, code)

    _check_learned(first, second, alone)


def test_a_loss_may_call_the_model_in_any_way(tmp_path: Path) -> None:
    code = '''
PARTS = """
def loss(model, batch):
    x = model.first(batch[0])
    for block in model.blocks: x = block(x)
    return 2 * nn.functional.mse_loss(model.last(x), batch[1]) + 0.01 * model.last.weight.square().sum()
"""
TWICE = """
def loss(model, batch): return nn.functional.mse_loss(model(batch[0]), batch[1]) + model(-batch[0]).square().mean()
"""
METHOD = """
class WithMethod(Net):
    def training_step(self, batch): return nn.functional.mse_loss(self(batch[0]), batch[1])
def model():
    torch.manual_seed(1)
    return WithMethod()
def loss(model, batch): return model.training_step(batch)
def validation(): return TensorDataset(inputs, targets)
"""
DICT = """
def model():
    torch.manual_seed(1)
    return nn.ModuleDict({"first": nn.Linear(6, 8), "last": nn.Linear(8, 3)})
def loss(model, batch): return nn.functional.mse_loss(model["last"](model["first"](batch[0])), batch[1])
"""
INSIDE = """
def model():
    torch.manual_seed(1)
    return nn.DataParallel(Net())
def loss(model, batch):
    return model.module.weight_of_loss * nn.functional.mse_loss(model(batch[0]) + model.module(batch[0]), batch[1])
"""
NAMES = ("parts", PARTS), ("twice", TWICE), ("method", METHOD), ("dict", DICT), ("inside", INSIDE)
for strategy in (None, "zero2", "fsdp") if SIZE > 1 else (None,):
    for name, text in NAMES:
        tried(f"{name} {strategy}", text=text, strategy=strategy, gradient_accumulation_steps=2)
    training = start(HERE, TARGET + METHOD, batch_size=8, strategy=strategy)
    training.train(watch(1))
    tell(**{f"validated {strategy}": training.validate(2)})
'''
    (alone,) = _told(tmp_path, code, size=1)
    first, second = _told(tmp_path, code)

    assert [told.pop(f"validated {strategy}") for told in (first, second) for strategy in STRATEGIES] == [2] * 6
    _check_learned(first, second, alone)


def test_weights_in_channels_last_are_shared_out_too(tmp_path: Path) -> None:
    code = '''
IMAGES = """
def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(4, 3))
def loss(model, batch):
    images = batch[0][:, :1].reshape(-1, 1, 1, 1).repeat(1, 2, 3, 3)
    return nn.functional.mse_loss(model(images), batch[1])
"""
for strategy in (None, "zero2", "fsdp"):
    tried(f"{strategy}", text=IMAGES, strategy=strategy, channels_last=True)
'''
    first, second = _told(tmp_path, code)

    assert first == second
    for strategy in ("zero2", "fsdp"):
        assert _difference(first[strategy], first["None"]) < 1e-5, first[strategy]


def test_what_keeps_ranks_from_learning_the_same_is_named(tmp_path: Path) -> None:
    code = '''
PAST = """
def step(model, batch, optimizers):
    x = model.first(batch[0])
    for block in model.blocks: x = block(x)
    loss = nn.functional.mse_loss(model.last(x), batch[1])
    optimizers[0].backward(loss)
    optimizers[0].step()
    optimizers[0].zero_grad()
    return loss
"""
OF_A_BLOCK = """
def loss(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1]) + model.blocks[0].inner.weight.square().sum()
"""
BIGGER = """
class Bigger(Net):
    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(3, 3)
    def forward(self, x):
        x = super().forward(x)
        return self.extra(x) if CONDITION else x
def model(): return Bigger()
"""
HEADS = """
class Heads(Net):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
    def forward(self, x):
        x = super().forward(x)
        return self.heads[rank](x) + REST
def model(): return Heads()
"""
STILL = "def scheduler(optimizer): return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)"
DRAWN = """
def loss(model, batch):
    with torch.no_grad(): model.last.bias.add_(rank)
    return nn.functional.mse_loss(model(batch[0]), batch[1])
"""
OUTSIDE = """
side = nn.Linear(3, 3)
def loss(model, batch): return nn.functional.mse_loss(side(model(batch[0])), batch[1])
def optimizer(model): return torch.optim.SGD([*model.parameters(), *side.parameters()], lr=0.01)
"""
BARE = """
temperature = nn.Parameter(torch.ones(3))
def loss(model, batch): return nn.functional.mse_loss(model(batch[0]) * temperature, batch[1])
def optimizer(params): return torch.optim.Adam([*params, temperature])
"""
ATTRIBUTE = "class Scale: pass\\nscale = Scale()\\n" + BARE.replace("temperature", "scale.value")
NAMELESS = "scales = [None]\\n" + BARE.replace("temperature", "scales[0]")
INSIDE_MODEL = BARE.replace("* temperature", "* model.temperature").replace("[*params, temperature]", "params") + """
def model():
    net = Net()
    net.temperature = temperature
    return net
"""
AVERAGED_BARE = BARE + """
def step(model, batch, optimizers):
    loss = nn.functional.mse_loss(model(batch[0]) * temperature, batch[1])
    optimizers[0].backward(loss)
    dist.all_reduce(temperature.grad)
    optimizers[0].step()
    optimizers[0].zero_grad()
    return loss
"""
FROZEN_BARE = BARE.replace("torch.ones(3)", "torch.ones(3) + rank, requires_grad=False")
PERTURBED = """
def loss(model, batch):
    delta = torch.zeros_like(batch[0], requires_grad=True)
    inner = torch.optim.SGD([delta], lr=0.1)
    (delta - batch[0]).square().sum().backward()
    inner.step()
    return nn.functional.mse_loss(model(batch[0] + delta.detach()), batch[1])
"""
AROUND = "def model(): return nn.DataParallel(Net())"
PARALLEL = "def model(): return nn.Sequential(nn.DataParallel(Net()))"
def looked(name, text, **values):
    from autotune.core.records import Config
    from autotune.knobs import defaults
    config = Config(values=defaults() | {"batch_size": 8} | values)
    try:
        facts = inspect(HERE, TARGET + text, config)
        told = [facts.step.parameters_with_gradient, *(one.text for one in facts.check_lines if "leave it" in one.text)]
    except TargetError as error: told = str(error).replace(f"rank{RANK}/", "")
    tell(**{name: told})
looked("past", PAST)
looked("past, rate 0", PAST + STILL)
looked("past, shared out", PAST, strategy="fsdp")
looked("of a block, shared out", OF_A_BLOCK, strategy="fsdp")
looked("without a forward", PAST + "def model(): return nn.ModuleDict({'one': nn.Linear(6, 3)})")
looked("unused", BIGGER.replace("CONDITION", "False"))
looked("unused on one", BIGGER.replace("CONDITION", "rank == 0"))
looked("looked for", BIGGER.replace("CONDITION", "rank == 0") + "find_unused_parameters = True")
looked("needlessly looked for", "find_unused_parameters = True")
looked("heads", HEADS.replace("REST", "0"))
looked("heads, looked for", HEADS.replace("REST", "0") + "find_unused_parameters = True")
looked("heads, computed", HEADS.replace("REST", "0 * self.heads[1 - rank](x)"))
looked("unused, shared out", BIGGER.replace("CONDITION", "False"), strategy="zero2")
looked("drawn", DRAWN)
looked("outside", OUTSIDE)
looked("outside, rate 0", OUTSIDE + STILL)
looked("outside, shared out", OUTSIDE, strategy="fsdp")
looked("bare", BARE)
looked("bare, rate 0", BARE + STILL)
looked("bare, shared out", BARE, strategy="fsdp")
looked("bare, an attribute", ATTRIBUTE)
looked("bare, nameless", NAMELESS)
looked("bare, in the model", INSIDE_MODEL)
looked("bare, averaged", AVERAGED_BARE)
looked("bare, frozen", FROZEN_BARE)
looked("a perturbation of the batch", PERTURBED)
looked("DataParallel", PARALLEL)
looked("DataParallel around it", AROUND)
looked("DataParallel, shared out", AROUND, strategy="fsdp")
looked("averaged", "def ema(model): return torch.optim.swa_utils.AveragedModel(model)", strategy="zero2")
tried("later", text=BIGGER.replace("CONDITION", "len(x) == 0"))
'''
    first, second = _told(tmp_path, code)

    assert {name: told for name, told in first.items() if told != second[name]} == {"looked for": [18]}
    for name in ("past", "past, rate 0"):
        assert "different values of first.weight, first.bias" in first[name]
        assert f"step() (model.py:{STEP_LINE}) probably calls parts of the model" in first[name]
    for name in ("past, shared out", "of a block, shared out"):
        assert "a weight was used that is shared out among the ranks" in first[name]
    assert "Return a module whose forward calls its parts." in first["without a forward"]
    assert first["unused"].startswith("extra.weight, extra.bias got no gradient in a step, and all ranks wait")
    assert f"(Bigger.forward in model.py:{STEP_LINE + 4})" in first["unused"]
    assert first["unused on one"].startswith(
        "extra.weight, extra.bias got no gradient in a step on rank 1, but one on rank 0, and all ranks wait"
    )
    assert first["heads"].startswith(
        "heads.1.weight, heads.1.bias got no gradient in a step on rank 0, but one on rank 1; heads.0.weight, "
        "heads.0.bias none on rank 1, but one on rank 0, and all ranks wait for one before they average gradients. "
        f"The model (Heads.forward in model.py:{STEP_LINE + 4}) probably takes a branch by the rank's number"
    )
    assert first["heads"].endswith("0 * their output in the loss, or write find_unused_parameters = True.")
    assert first["heads, looked for"] == [18]
    assert first["heads, computed"] == [20]
    count, advice = first["needlessly looked for"]
    assert count == 16
    assert advice.endswith(f"skip a part of the model, leave it out (model.py:{STEP_LINE - 1})")
    assert first["unused, shared out"] == [16]
    assert "different values of last.bias. Probably a part of the model (Net.forward in model.py:" in first["drawn"]
    for name in ("outside", "outside, rate 0", "outside, shared out"):
        assert "different values of Linear.weight, Linear.bias. The optimizer (model.py:" in first[name]
    for name in ("bare", "bare, rate 0", "bare, shared out"):
        assert "values of temperature (parameter 17 of Adam, shape (3,)). The optimizer (model.py:" in first[name]
        assert "a bare nn.Parameter as an attribute (net.scale = nn.Parameter(...) in model()" in first[name]
    assert "different values of scale.value (parameter 17 of Adam, shape (3,)). " in first["bare, an attribute"]
    assert "different values of parameter 17 of Adam, shape (3,). " in first["bare, nameless"]
    assert first["bare, in the model"] == [17]
    assert first["bare, averaged"] == first["bare, frozen"] == [16]
    assert first["a perturbation of the batch"] == [16]
    assert first["DataParallel around it"] == first["DataParallel, shared out"] == [16]
    assert "Return the module that is in it." in first["DataParallel"]
    assert "Use strategy ddp." in first["averaged"]
    assert first["later"].startswith("extra.weight, extra.bias got no gradient"), "without an inspection, by torch"


def test_heads_of_each_rank_are_named_without_an_inspection_too(tmp_path: Path) -> None:
    code = '''
HEADS = """
def model():
    net = Net()
    net.heads = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
    return net
def loss(model, batch): return nn.functional.mse_loss(model.heads[rank](model(batch[0])), batch[1])
"""
tried("heads", text=HEADS)
'''
    first, second = _told(tmp_path, code)

    assert first == second
    assert first["heads"].startswith(
        "heads.1.weight, heads.1.bias got no gradient in a step on rank 0, but one on rank 1; heads.0.weight, "
        "heads.0.bias none on rank 1, but one on rank 0, and all ranks wait for one before they average gradients. "
    )


def test_micro_steps_with_and_without_an_exchange_are_told_and_teach_nothing(tmp_path: Path) -> None:
    code = """
from autotune.targets.base import Order
from autotune.testing.target_contract import Recorder
pairs = [Order.EXCHANGE] * 6
for strategy in (None, "zero2", "fsdp"):
    training = start(HERE, TARGET, batch_size=8, strategy=strategy)
    recorder = Recorder(*pairs, Order.CONTINUE, Order.CONTINUE, Order.STOP)
    training.train(recorder)
    whole = [one.full_tensor() if hasattr(one, "full_tensor") else one for one in training.model.parameters()]
    tell(**{f"{strategy}": torch.cat([one.detach().flatten() for one in whole]).tolist()})
    tell(steps=len(recorder.steps), micro_steps=recorder.micro_steps, plain=learned(batch_size=8))
"""
    for told in _told(tmp_path, code):
        assert told["micro_steps"] == [False, True] * 3
        assert told["steps"] == 3
        for strategy in STRATEGIES:
            assert _difference(told[f"{strategy}"], told["plain"]) < 1e-5


def test_arguments_of_ddp_and_compiled_blocks_leave_the_update_as_it_is(tmp_path: Path) -> None:
    code = """
import contextlib
from functools import partial
import tests.targets_support as support
torch.compile = partial(torch.compile, backend="aot_eager")  # generating code takes a minute
support.clean_imports = contextlib.nullcontext  # Dynamo looks the user's module up
def again(name, **options):
    sys.modules.pop("model", None)
    tried(name, gradient_accumulation_steps=2, **options)
again("ddp")
again("bucket", bucket_cap_mb=10)
again("view", gradient_as_bucket_view=True)
again("static", static_graph=True)
for strategy in ("zero2", "fsdp"):
    again(f"compiled {strategy}", strategy=strategy, compile_mode="default", activation_checkpointing=True)
"""
    for told in _told(tmp_path, code):
        assert told["bucket"] == told["view"] == told["ddp"]
        for name in ("static", "compiled zero2", "compiled fsdp"):  # static: the first of all micro-batches exchanges
            assert _difference(told[name], told["ddp"]) < 1e-5, name
