"""Ranks of torchrun that do not learn the same are refused with the parameter's name, and all others are not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.core.requests import InspectRequest
from autotune.core.results import Inspection, Outcome
from autotune.launch.subprocess import SubprocessLauncher
from tests.faults.conftest import MARK, marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is left of a probe is looked up in /proc")
START = """
import itertools, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo")
rank, cross_entropy = dist.get_rank(), nn.functional.cross_entropy
torch.manual_seed(0)
data = TensorDataset(torch.randn(256, 4), torch.randint(2, (256,)))
loader = DataLoader(data, 8, sampler=DistributedSampler(data))
"""
SGD = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
CALL = "cross_entropy(model(x), y)"
LOOP = """
for number, (x, y) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
    cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
HEAD = """
body, head = DDP(nn.Linear(4, 8)), nn.Linear(8, 2)
optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()])
def model(x): return head(body(x))
"""
AVERAGED = LOOP.replace(
    "    optimizer.step()\n", "    for one in head.parameters(): dist.all_reduce(one.grad)\n    optimizer.step()\n"
)
ALL_AVERAGED = AVERAGED.replace("head.", "model.")
BROADCAST = LOOP + "    for one in head.parameters(): dist.broadcast(one.data, 0)\n"
ACCUMULATING = """
from contextlib import nullcontext
for number, (x, y) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
    with nullcontext() if number % 2 else model.no_sync():
        cross_entropy(model(x), y).backward()
    if number % 2:
        optimizer.step()
        optimizer.zero_grad()
"""
BY_CLOSURE = """
def passes():  # as Lightning's Trainer has them: the optimizer runs the last ones of its step
    loss = cross_entropy(model(x), y)
    if number % 2 == 0: optimizer.zero_grad()
    loss.backward()
    return loss
for number, (x, y) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
    if number % 2:
        optimizer.step(passes)
    else:
        with model.no_sync(): passes()
"""
SELDOM_UNUSED = """
class Net(nn.Module):  # its tenth pass skips a layer
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last, self.passes = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2), 0
    def forward(self, x):
        self.passes += 1
        x = self.first(x)
        return self.last(x if self.passes == 10 else self.second(x))
model = DDP(Net(), find_unused_parameters=True)
"""
BATCH_NORM = "model = DDP(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), broadcast_buffers=False)"
ZERO = """
from torch.distributed.optim import ZeroRedundancyOptimizer
model = DDP(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
"""
SHARDED = """
from torch.distributed.fsdp import fully_shard
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
fully_shard(model)
"""
PLAIN = "torch.manual_seed(rank)\nmodel = nn.Linear(4, 2)"
SAME = "model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))"
SCALE = """
model, scale = DDP(nn.Linear(4, 2)), nn.Parameter(torch.ones(2))
optimizer = torch.optim.Adam([*model.parameters(), scale])
"""
SCALED_LOOP = LOOP.replace(CALL, "cross_entropy(model(x) * scale, y)")
OF_AN_OBJECT = """
class Loss:
    def __init__(self): self.temperature = nn.Parameter(torch.ones(()))
    def __call__(self, x, y): return cross_entropy(30 * x * self.temperature, y)
def main():
    model, loss = DDP(nn.Linear(4, 2)), Loss()
    optimizer, other = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam([loss.temperature])
    for number, (x, y) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
        loss(model(x), y).backward()
        for each in (optimizer, other):
            each.step()
            each.zero_grad()
main()
"""
PERTURBED = """
model = DDP(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, (x, y) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
    delta = torch.zeros_like(x, requires_grad=True)
    inner = torch.optim.SGD([delta], lr=0.1)
    for _ in range(INNER):
        (delta - x).square().sum().backward()
        inner.step()
    cross_entropy(model(x + delta.detach()), y).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
OWN_SCALE = (
    SCALE.replace("nn.Parameter(torch.ones(2))", "nn.ParameterList([torch.ones(2)])").replace(
        "scale]", "*scale.parameters()]"
    )
    + "DDP._set_params_and_buffers_to_ignore_for_model(scale, ['0'])\nscales, scale = scale, scale[0]\n"
)
STAGES = """
torch.manual_seed(rank)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, (x, y) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
    there, back = torch.empty(8, 4, requires_grad=True), torch.empty(8, 4)
    if rank == 0:
        out = model(x)
        dist.isend(out.detach(), 1).wait()
        dist.irecv(back, 1).wait()
        out.backward(back)
    else:
        dist.irecv(there.data, 0).wait()
        cross_entropy(model(there), y).backward()
        dist.isend(there.grad, 0).wait()
    optimizer.step()
    optimizer.zero_grad()
"""
SWEEP = """
dist.destroy_process_group()
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (1 + rank))
"""
OWN_HEADS = HEAD + "DDP._set_params_and_buffers_to_ignore_for_model(head, ['weight', 'bias'])\n"
BY_HAND = """
import autotune
for number, (x, y) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
    loss = cross_entropy(model(x), y)
    loss.backward()
    for one in model.parameters(): one.data -= 0.1 * one.grad
    model.zero_grad()
    autotune.step(loss=loss, samples=len(x))
"""
BY_SHAPE = """
tables = nn.Embedding(10 + rank, 4)
model = DDP(nn.Linear(4, 2))
optimizer = torch.optim.SGD([*model.parameters(), *tables.parameters()], lr=0.1)
for number, (x, y) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
    cross_entropy(model(x + tables((x[:, 0].abs() * 3).long())), y).backward()
    optimizer.step()
"""
TABLES = """
from torch.distributed.nn.functional import all_to_all_single
class Tables(nn.Module):  # each rank has that of one feature
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)
    def forward(self, ids):
        asked = torch.empty(ids.numel(), dtype=ids.dtype)
        dist.all_to_all_single(asked, ids.t().contiguous().flatten())
        rows = self.table(asked)
        return all_to_all_single(torch.empty_like(rows), rows).view(2, -1, 4).sum(0)
torch.manual_seed(rank)
tables, model = Tables(), DDP(nn.Linear(8, 2))
optimizer = torch.optim.SGD([*model.parameters(), *tables.parameters()], lr=0.1)
for number, (x, y) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
    cross_entropy(model(torch.cat([x, tables((x[:, :2].abs() * 3).long().clamp(max=9))], 1)), y).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
ALONE = """
for number, (x, y) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
    with model.no_sync():
        cross_entropy(model(x), y).backward()  # line 17
    optimizer.step()
    optimizer.zero_grad()
"""
LOCAL_SGD = (
    ALONE
    + """
    if number % 5 == 4:
        for one in model.parameters():
            dist.all_reduce(one.data)
            one.data /= 2
"""
)
OWN_LOCAL_SGD = LOCAL_SGD.replace("with model.no_sync():", "if True:")
GOSSIP = (
    ALONE
    + """
    for one in model.parameters():
        other = torch.empty_like(one)
        for each in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, one.data.clone() if rank else one.data, 1 - rank),
            dist.P2POp(dist.irecv, other if rank == 0 else one.data, 1 - rank),
        ]): each.wait()
        if rank == 0: one.data.lerp_(other, 0.25)
"""
)
JOIN = """
for epoch in range(10**6):
    with dist.algorithms.join.Join([model]):
        for x, y in loader:
            cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
"""
AVERAGE = """
import copy
average = copy.deepcopy(model.module)
def update():
    for one, other in zip(average.parameters(), model.module.parameters()): one.data.lerp_(other.data, 0.1)
"""
SYNCHRONISED = """
from torch.distributed.nn.functional import all_reduce
class Normed(nn.Module):  # as SyncBatchNorm, which refuses a CPU
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
    def forward(self, x): return (x - all_reduce(x.mean(0)) / 2) * self.weight
model = DDP(nn.Sequential(nn.Linear(4, 8), Normed(), nn.Linear(8, 2)))
"""
FROZEN = "inner = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))\ninner[0].requires_grad_(False)\nmodel = DDP(inner)\n"
UNUSED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.extra = nn.Linear(4, 2), nn.Linear(3, 3)
    def forward(self, x):  # line 17
        return self.first(x)
model = DDP(Net())
"""
DRAWN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.register_buffer("position_ids", torch.arange(8).expand(1, -1), persistent=False)
        torch.manual_seed(1 + rank)
        self.register_buffer("omega", torch.randn(4, 8), persistent=False)
    def forward(self, x): return self.head(self.norm(torch.cos(x @ self.omega) + self.position_ids))
"""
NORMAL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        self.register_buffer("position_ids", torch.arange(4).expand(1, -1), persistent=False)
        self.register_buffer("number", torch.tensor(rank))
        self.register_buffer("filled", torch.zeros(4))
        self.register_buffer("queue", torch.randn(16, 4) + rank)
    def forward(self, x):
        if not self.filled.any(): self.filled.copy_(x.mean(0))  # by the first batch, and by no other
        self.queue = torch.cat([x, self.queue[:8]])
        return self.layers(x + 0 * self.position_ids)
"""
HEADS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(4, 2) for _ in range(2))
    def forward(self, x):  # line 17
        return self.heads[rank](x) + REST
model = DDP(Net())
"""
ONE_HEAD = HEADS.replace("heads[rank](x) + REST", "heads[0](x) + (self.heads[1](x) if rank == 0 else 0)")
WRAPPED, NOT_BROADCAST = "model = DDP(Net())", "model = DDP(Net(), broadcast_buffers=False)"
SHARED_OUT = "from torch.distributed.fsdp import fully_shard\nmodel = Net()\nfully_shard(model)"
SUMMED = LOOP.replace("    optimizer.step()\n", "    dist.all_reduce(torch.ones(1))\n    optimizer.step()\n")
IGNORED = "model = Net()\nDDP._set_params_and_buffers_to_ignore_for_model(model, ['omega'])\nmodel = DDP(model)"
SCRIPTED = """
scripted = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))
model = DDP(nn.Sequential(nn.Linear(4, 8), scripted, nn.Linear(8, 2)))
"""
GATHERED = (
    LOOP
    + """
    model.unshard()  # as it is during a pass: facts that are read meanwhile find other parameters than those trained
    time.sleep(1)
"""
)
SCALED = """
scaler = torch.amp.GradScaler("cpu")
for number, (x, y) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
    scaler.scale(cross_entropy(model(x), y) * (1 if number else 1e38)).backward()  # the first overflows
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
SYNCHRONISED_NORM = """
class OnCpu(nn.SyncBatchNorm):  # which refuses a CPU
    forward = nn.BatchNorm1d.forward
model = nn.Sequential(nn.Linear(4, 8), OnCpu(8), nn.Linear(8, 2))
"""
BY_TRAINER = """
from transformers import Trainer, TrainingArguments
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x, labels): return {"loss": cross_entropy(self.layer(x), labels)}
class Own(Trainer):
    def compute_loss(self, model, inputs, **others): return MODEL(**inputs)["loss"]
rows = [{"x": x, "labels": y} for x, y in data]
Own(Net(), TrainingArguments("out", max_steps=500, report_to=[], use_cpu=True), train_dataset=rows).train()
"""
WIDTHS = "model = nn.Sequential(nn.Linear(4, 8 * (1 + rank)), nn.Linear(8 * (1 + rank), 2))"
BY_LIGHTNING = """
import lightning
class Lit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.extra = nn.Linear(4, 2), nn.Linear(4, 2)
    def training_step(self, batch, number): return cross_entropy(self.layer(batch[0]), batch[1])
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)
lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=9, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
).fit(Lit(), loader)
"""
DEPTHS = "model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(1 + rank)], nn.Linear(4, 2))"
UNLIKE_STAGES = STAGES.replace("nn.Linear(4, 4)", "nn.Linear(4, 8) if rank == 0 else nn.Linear(8, 2)").replace(
    "empty(8, 4", "empty(8, 8"
)
COLUMNS = """
from torch.distributed.nn.functional import all_reduce
class Net(nn.Module):  # of a layer each rank has columns, of the next one rows
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8 - 4 * rank), nn.Linear(8 - 4 * rank, 2)
    def forward(self, x): return all_reduce(self.down(self.up(x).relu()))
model = Net()
"""
UNEVEN = "share = range(0, 128 + 64 * rank)\nloader = DataLoader(Subset(data, share), 8)\n"
Inspect = Callable[[str], Inspection]


@pytest.fixture
def inspect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inspect]:
    monkeypatch.chdir(tmp_path)

    def run(text: str) -> Inspection:
        (tmp_path / "train.py").write_text(START + text)
        (tmp_path / "probe").mkdir()
        target = "-- python -m torch.distributed.run --standalone --nproc-per-node 2 train.py"
        return launcher.run(InspectRequest(target=target, device="cpu"), tmp_path / "probe")

    with SubprocessLauncher(environ={MARK: str(tmp_path)}) as launcher:
        yield run
    assert marked(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + LOOP, ["rank 1 has other values of Linear.weight, Linear.bias than rank 0",
                       "Make their module a part of the module that DistributedDataParallel wraps"]),
        ("model = DDP(nn.Linear(4, 2))" + SGD + LOOP.replace("model(x)", "model.module(x)"),
         ["other values of Linear.weight, Linear.bias", "(made in train.py:12)", "Call the wrapped model"]),
        (HEAD + "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 9)" + LOOP
         + "    schedule.step()\n", ["rank 1 has other values of Linear.weight, Linear.bias than rank 0"]),
        ("model = DDP(nn.Linear(4, 2))" + SGD + ALONE,
         ["other values of Linear.weight, Linear.bias", "(called in train.py:17) is inside no_sync()"]),
        ("model = DDP(nn.Linear(4, 2))" + SGD + LOOP + "    with torch.no_grad(): model.module.bias += rank\n",
         ["other values of Linear.bias", "random numbers that differ between ranks"]),
        (SCALE + SCALED_LOOP, ["rank 1 has other values of scale (parameter 3 of Adam, shape (2,)) than rank 0",
                               "The optimizer (made in train.py:14) trains them", "self.scale = nn.Parameter(...)"]),
        (OF_AN_OBJECT, ["other values of loss.temperature (parameter 1 of Adam, shape ()) than rank 0"]),
        (SAME + SGD + LOOP, ["after each of 100 optimizer steps rank 1 has other values of Sequential.0.weight",
                             "the optimizer (made in train.py:13) trains, and no gradient and no parameter was exch",
                             "Write model = DistributedDataParallel(model) before the training loop"]),
        (PLAIN + SGD + SUMMED, ["other values of Linear.weight, Linear.bias than", "DistributedDataParallel is miss"]),
        (SWEEP + LOOP, ["the 2 ranks stepped their optimizers (made in train.py:15), and none called torch.distributed",
                        "as in a sweep, are no training of several ranks: tune one of them, without the launcher"]),
        (UNUSED + SGD + LOOP, ["extra.weight, extra.bias got no gradient", "(Net.forward in train.py:17)"]),
        (HEADS.replace("REST", "0") + SGD + LOOP,
         ["heads.1.weight, heads.1.bias got no gradient in a step on rank 0, but one on rank 1; heads.0.weight, "
          "heads.0.bias none on rank 1, but one on rank 0, and all ranks wait", "(Net.forward in train.py:17)",
          "0 * their output in the loss, or give DistributedDataParallel find_unused_parameters=True."]),
        (ONE_HEAD + SGD + LOOP,
         ["heads.1.weight, heads.1.bias got no gradient in a step on rank 1, but probably one on rank 0, and",
          "give DistributedDataParallel find_unused_parameters=True; if no rank uses them, take them out"]),
    ],
    ids=["a head beside the model", "past the wrapper", "rate 0 at first", "no_sync", "written into",
         "a bare parameter", "a bare number with an optimizer of its own", "not wrapped",
         "only a loss is added up", "no group", "unused", "a head of each rank", "a head of one rank"],
)  # fmt: skip
def test_what_drifts_is_refused_with_its_name(inspect, text, words):
    found = inspect(text)

    assert found.outcome is Outcome.USER_ERROR
    assert found.failure is not None
    assert [one for one in words if one not in found.failure.message] == []


def test_what_drifts_under_a_trainer_is_answered_by_what_its_user_can_do(inspect):
    pytest.importorskip("transformers")

    past = inspect(BY_TRAINER.replace("MODEL", "self.model"))

    assert past.outcome is Outcome.USER_ERROR
    assert "the script probably calls self.model or model.module" in past.failure.message
    assert "In compute_loss and training_step of a Trainer, call the model that they are given" in past.failure.message


def test_a_trainer_that_looks_for_unused_parameters_without_need_is_told_its_argument(inspect):
    pytest.importorskip("transformers")

    found = inspect(BY_TRAINER.replace("MODEL", "model"))

    texts = [one.text for one in found.facts.check_lines if one.needs_attention]
    assert any("give TrainingArguments ddp_find_unused_parameters=False (train.py:" in text for text in texts)


def test_a_second_optimizer_is_looked_at_too(inspect):
    apart = HEAD.replace("[*body.parameters(), *head.parameters()]", "body.parameters()")
    apart += "other = torch.optim.AdamW(head.parameters())\n"

    found = inspect(apart + LOOP + "    other.step()\n")

    assert found.outcome is Outcome.USER_ERROR
    assert "other values of Linear.weight, Linear.bias than rank 0" in found.failure.message


@pytest.mark.parametrize(
    "text",
    [
        "model = DDP(nn.Linear(4, 2))" + SGD + ACCUMULATING,
        "model = DDP(nn.Linear(4, 2))" + SGD + BY_CLOSURE,
        BATCH_NORM + SGD + LOOP,
        ZERO + LOOP,
        SELDOM_UNUSED + SGD + LOOP,
        SHARDED + SGD + LOOP,
        SAME + SGD + ALL_AVERAGED,
        SAME + SGD + ALL_AVERAGED + "    if number == 1: break\ndist.destroy_process_group()\n",
        SAME + SGD + OWN_LOCAL_SGD,
        SCALE + SCALED_LOOP.replace("    optimizer.step()", "    dist.all_reduce(scale.grad)\n    optimizer.step()"),
        SCALE.replace("(2))", "(2) + rank, requires_grad=False)") + SCALED_LOOP,
        OWN_SCALE + SCALED_LOOP,
        PERTURBED.replace("INNER", "1"),
        PERTURBED.replace("INNER", "3"),
        HEAD + AVERAGED,
        HEAD + BROADCAST,
        OWN_HEADS + LOOP,
        "model = DDP(nn.Linear(4, 2))" + SGD + LOOP + "    break\n",
        "model = DDP(nn.Linear(4, 2))" + SGD + AVERAGE + LOOP + "    update()\n",
        SYNCHRONISED + SGD + LOOP,
        FROZEN + SGD + LOOP,
        HEADS.replace("REST", "0 * self.heads[1 - rank](x)") + SGD + LOOP,
        HEADS.replace("REST", "0").replace("Net())", "Net(), find_unused_parameters=True)") + SGD + LOOP,
        ONE_HEAD.replace("Net())", "Net(), find_unused_parameters=True)") + SGD + LOOP,
        "model = DDP(nn.Linear(4, 2))" + SGD + LOCAL_SGD,
        BY_SHAPE,
        "model = DDP(nn.Linear(4, 2))" + BY_HAND,
    ],
    ids=["no_sync", "a closure", "BatchNorm", "ZeRO", "seldom unused", "fully_shard",
         "no DDP", "no DDP, and no group at the end",
         "local SGD without DDP", "bare, averaged",
         "bare, frozen", "bare, meant to differ", "a perturbation", "a perturbation in steps",
         "averaged by hand", "broadcast by hand",
         "meant to differ", "one step", "a moving average", "SyncBatchNorm", "frozen",
         "both heads on each rank", "a head of each rank", "a head of one rank", "local SGD", "another shape",
         "no optimizer"],
)  # fmt: skip
def test_what_learns_the_same_or_need_not_passes(inspect, text):
    found = inspect(text)

    assert found.outcome is Outcome.OK, found.failure
    assert (found.facts.ranks, found.facts.of_rank, found.facts.ranks_differ) == (2, None, ())
    assert [one.text for one in found.facts.check_lines if one.name == "ranks" and one.needs_attention] == []
    averaged = "the same after 5 optimizer steps: the script averages them itself"
    assert [averaged in one.text for one in found.facts.check_lines if "different values" in one.text] == (
        [True] if text.endswith((LOCAL_SGD, OWN_LOCAL_SGD)) else []
    )


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (TABLES, "Tables.table.weight", "they may be parts of one model"),
        (
            "model = DDP(nn.Linear(4, 2))" + SGD + GOSSIP,
            "Linear.weight",
            "exchanges them by calls of torch.distributed",
        ),
        (STAGES, "Linear.weight", "they may be parts of one model that each rank has for itself. If all ranks"),
    ],
    ids=["model parallel", "gossip", "a pipeline without DDP"],
)
def test_what_is_probably_meant_to_differ_is_told_and_not_refused(inspect, text, name, words):
    found = inspect(text)

    assert found.outcome is Outcome.OK, found.failure
    assert found.facts.ranks_differ[0] == name
    (said,) = [one.text for one in found.facts.check_lines if one.name == "ranks" and one.needs_attention]
    assert name in said
    assert words in said


@pytest.mark.parametrize(
    ("made", "loop"),
    [(NOT_BROADCAST, LOOP), (SHARED_OUT, LOOP), ("model = Net()", ALL_AVERAGED)],
    ids=["not broadcast", "fully_shard", "averaged by hand"],
)
def test_buffers_that_each_rank_drew_with_another_seed_are_told_and_not_refused(inspect, made, loop):
    found = inspect(DRAWN + made + SGD + loop)

    assert found.outcome is Outcome.OK, found.failure
    (name,) = found.facts.ranks_differ
    assert name.endswith("Net.omega")
    (said,) = [one.text for one in found.facts.check_lines if one.name == "ranks" and one.needs_attention]
    assert said.startswith(f"the ranks had different values of {name} after each of 17 optimizer steps: buffers that")


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        (WIDTHS + SGD + LOOP, True),
        (DEPTHS + SGD + SUMMED, True),
        (SAME + SGD + ALL_AVERAGED, False),
        (UNLIKE_STAGES, False),
        (COLUMNS + SGD + LOOP, False),
    ],
    ids=["widths", "depths, and a sum of losses", "one model", "stages of a pipeline", "parts of layers"],
)
def test_ranks_that_train_unlike_models_and_exchange_nothing_are_told(inspect, text, is_told):
    found = inspect(text)

    assert found.outcome is Outcome.OK
    assert found.facts is not None
    lines = [one.text for one in found.facts.check_lines if one.needs_attention and "different parameters" in one.text]
    assert len(lines) == is_told
    assert all(line.startswith("rank 1 and rank 0 train different parameters (Sequential.") for line in lines)


@pytest.mark.parametrize(
    ("model", "loop"),
    [
        (NORMAL + WRAPPED, LOOP),
        (NORMAL + NOT_BROADCAST, LOOP),
        (NORMAL + SHARED_OUT, LOOP),
        (NORMAL + "model = Net()", ALL_AVERAGED),
        (DRAWN + WRAPPED, LOOP),
        (DRAWN + IGNORED, LOOP),
        ("model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))", ALL_AVERAGED),
        (SCRIPTED, LOOP),
    ],
    ids=["broadcast", "not broadcast", "fully_shard", "averaged by hand", "drawn and broadcast", "meant to differ",
         "no buffers but statistics", "torch.jit"],
)  # fmt: skip
def test_buffers_of_an_ordinary_training_are_not_told_and_batch_norm_is(inspect, model, loop):
    found = inspect(model + SGD + loop)

    assert found.outcome is Outcome.OK, found.failure
    assert found.facts.ranks_differ == ()
    assert [one.text for one in found.facts.check_lines if one.name == "ranks" and one.needs_attention] == []
    (said,) = [one for one in found.facts.check_lines if one.name == "BatchNorm"]
    assert said.text.startswith("1 layer with the statistics of one rank's micro-batch, not of all 2: the size of that")
    assert said.needs_attention


def test_ranks_with_models_of_their_own_are_told_nothing_of_buffers_and_batch_norm(inspect):
    exchange = "    dist.all_reduce(torch.ones(32))\n    optimizer.step()\n"

    found = inspect(
        DRAWN + "torch.manual_seed(rank)\nmodel = Net()" + SGD + LOOP.replace("    optimizer.step()\n", exchange)
    )

    assert found.outcome is Outcome.OK, found.failure
    assert not [one for one in found.facts.ranks_differ if "omega" in one]
    assert found.facts.has_batch_norm
    assert [one.text for one in found.facts.check_lines if one.name == "BatchNorm"] == []


def test_a_model_that_is_shared_out_has_its_facts_however_the_script_goes_on(inspect):
    found = inspect("import time\n" + NORMAL + SHARED_OUT + SGD + GATHERED)

    assert found.outcome is Outcome.OK, found.failure
    facts = found.facts
    assert (facts.name, facts.parameter_count, facts.has_batch_norm) == ("Net", 74, True)
    assert [one.text for one in facts.check_lines if one.name == "model"] == ["Net, 74 parameters"]


def test_a_model_whose_first_step_the_gradient_scaler_left_out_has_its_facts(inspect):
    found = inspect("model = DDP(nn.Linear(4, 2))" + SGD + SCALED)

    assert found.outcome is Outcome.OK, found.failure
    assert (found.facts.name, found.facts.parameter_count) == ("Linear", 10)


def test_synchronised_batch_norm_is_told(inspect):
    found = inspect(SYNCHRONISED_NORM + SGD + ALL_AVERAGED)

    assert found.outcome is Outcome.OK, found.failure
    (said,) = [one for one in found.facts.check_lines if one.name == "BatchNorm"]
    assert said.text.startswith("1 layer of SyncBatchNorm: statistics of all ranks")
    assert not said.needs_attention


def test_epochs_of_different_length_are_told(inspect):
    found = inspect("model = DDP(nn.Linear(4, 2))" + SGD + UNEVEN + LOOP)

    assert found.outcome is Outcome.OK, found.failure
    (text,) = [
        one.text for one in found.facts.check_lines if "the ranks have 16 and 24 batches in an epoch" in one.text
    ]
    assert text.endswith("Join (train.py:15)")


def test_a_loader_that_gives_all_ranks_the_same_batches_is_told(inspect):
    found = inspect("loader = DataLoader(data, 8)\nmodel = DDP(nn.Linear(4, 2))" + SGD + LOOP)

    (text,) = [one.text for one in found.facts.check_lines if one.name == "ranks" and one.needs_attention]
    assert text.startswith("all 2 ranks had the same first batch (train.py:12), so an optimizer step probably learns")


def test_variables_of_nccl_are_told(inspect, monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Ring")

    found = inspect("model = DDP(nn.Linear(4, 2))" + SGD + LOOP)

    (text,) = [one.text for one in found.facts.check_lines if one.name == "NCCL"]
    assert text.startswith("NCCL_ALGO set outside: not tuned")


def test_stages_of_a_pipeline_may_have_the_same_batches(inspect):
    found = inspect("loader = DataLoader(data, 8)\n" + STAGES)

    assert not [one.text for one in found.facts.check_lines if "same first batch" in one.text]


def test_a_parameter_without_a_gradient_is_named_where_lightning_hides_it(inspect):
    pytest.importorskip("lightning")

    found = inspect(BY_LIGHTNING)

    assert found.outcome is Outcome.USER_ERROR
    assert found.failure.message.startswith("extra.weight, extra.bias got no gradient in a step, and all ranks wait")


def test_micro_batches_of_different_sizes_are_refused(inspect):
    sizes = "loader = DataLoader(data, 8 + 8 * rank, sampler=DistributedSampler(data))\n"

    found = inspect("model = DDP(nn.Linear(4, 2))" + SGD + sizes + LOOP)

    assert found.outcome is Outcome.USER_ERROR
    assert "micro-batches of different sizes, by rank: 8, 16 (train.py:14)" in found.failure.message


def test_under_join_they_may_have_different_lengths(inspect):
    found = inspect("model = DDP(nn.Linear(4, 2))" + SGD + UNEVEN + JOIN)

    assert found.outcome is Outcome.OK, found.failure
    (one,) = [one for one in found.facts.check_lines if "batches in an epoch" in one.text]
    assert (one.text, one.needs_attention) == (
        "the ranks have 16 and 24 batches in an epoch, and train under Join, so that none waits for ever (train.py:15)",
        False,
    )


def test_what_a_wrapper_does_without_need_is_told_with_its_line(inspect):
    late = "    with nullcontext() if number % 2 else model.no_sync():\n        cross_entropy(model(x), y).backward()\n"
    outside = ACCUMULATING.replace(late, "    loss = cross_entropy(model(x), y)\n" + late.replace(CALL, "loss"))

    found = inspect("model = DDP(nn.Linear(4, 2), find_unused_parameters=True)" + SGD + outside)

    assert found.outcome is Outcome.OK, found.failure
    told = [one.text for one in found.facts.check_lines if one.name == "ranks" and one.needs_attention]
    assert [
        text for text in told if "Unless other batches skip a part of the model, leave it out (train.py:12)" in text
    ]
    assert [text for text in told if "the forward pass in train.py:17 is outside of no_sync()" in text]
