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
OWN_HEADS = HEAD + "DDP._set_params_and_buffers_to_ignore_for_model(head, ['weight', 'bias'])\n"
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
                       "Make their module a part of the one that DistributedDataParallel wraps"]),
        ("model = DDP(nn.Linear(4, 2))" + SGD + LOOP.replace("model(x)", "model.module(x)"),
         ["other values of Linear.weight, Linear.bias", "Call the wrapped model"]),
    ],
    ids=["a head beside the model", "past the wrapper"],
)  # fmt: skip
def test_what_drifts_is_refused_with_its_name(inspect, text, words):
    found = inspect(text)

    assert found.outcome is Outcome.USER_ERROR
    assert found.failure is not None
    assert [one for one in words if one not in found.failure.message] == []


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
        BATCH_NORM + SGD + LOOP,
        ZERO + LOOP,
        SHARDED + SGD + LOOP,
        PLAIN + SGD + LOOP,
        HEAD + AVERAGED,
        HEAD + BROADCAST,
        OWN_HEADS + LOOP,
        "model = DDP(nn.Linear(4, 2))" + SGD + LOOP + "    break\n",
    ],
    ids=["no_sync", "BatchNorm", "ZeRO", "fully_shard", "no DDP", "averaged by hand", "broadcast by hand",
         "meant to differ", "one step"],
)  # fmt: skip
def test_what_learns_the_same_or_need_not_passes(inspect, text):
    found = inspect(text)

    assert found.outcome is Outcome.OK, found.failure
    assert (found.facts.ranks, found.facts.of_rank) == (2, None)
    assert not [one for one in found.facts.findings if "batches in an epoch" in one.text]


def test_epochs_of_different_length_are_told(inspect):
    found = inspect("model = DDP(nn.Linear(4, 2))" + SGD + UNEVEN + LOOP)

    assert found.outcome is Outcome.OK, found.failure
    assert [one.name for one in found.facts.findings if "the ranks have 16 and 24 batches in an epoch" in one.text] == [
        "ranks"
    ]
