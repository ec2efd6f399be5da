"""What is exported for several ranks trains one model: how its processes start and share data is told."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from autotune.core.records import CheckLine, Value
from autotune.errors import UsageError
from autotune.export import accelerate, deepspeed, huggingface, lightning, loop, torchtitan
from autotune.export.merging import merged
from autotune.export.plain import as_yaml
from autotune.export.recipe import recipe
from autotune.knobs.wording import Framework
from tests.exporting import PROGRAMS, TRAINERS, exported
from tests.reporting import ENVIRONMENT, FACTS, recommendation

# Two processes learn from different samples: their weights are the same only if gradients are averaged. Where the
# batches have a choice, each leaves parameters without a gradient.
SCRIPT = """
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches, self.batches = nn.ModuleList(nn.Linear(4, 2) for _ in range(CHOICES)), 0

    def forward(self, inputs):
        self.batches += 1
        return self.branches[self.batches % CHOICES](inputs)

torch.manual_seed(int(os.environ.get("RANK", 0)))  # a user's ranks need not begin alike: those of rank 0 count
model = Branches()
torch.manual_seed(7)
dataset = TensorDataset(torch.randn(256, 4), torch.randint(2, (256,)))
loss_fn, epochs = lambda outputs, targets: nn.functional.cross_entropy(outputs, targets), 1
"""
OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
END = """
from torch.distributed import all_gather, get_rank
own = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
all_gather(everybody := [torch.empty_like(own) for _ in range(2)], own)
assert torch.equal(*everybody), everybody
assert not torch.equal(own, torch.zeros_like(own))
open(f"rank{get_rank()}", "w").write(type(model).__name__)  # how a process ends then depends on which ends first
"""
WHOLE = """
open(f"rank{torch.distributed.get_rank()}", "w").write("")  # after its weights, which ranks share, were put together
"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def trained(folder: Path, *pieces: str, starter: tuple[str, ...] = TORCHRUN, choices: int = 1) -> None:
    """Let two processes carry out the pieces of a program, the last of which writes what they are.

    `choices`: the branches of the model that its batches take in turn.
    """
    (folder / "train.py").write_text("".join((SCRIPT.replace("CHOICES", str(choices)), *pieces)))
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, *starter, "train.py"]
    ended = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert [(folder / f"rank{rank}").is_file() for rank in range(2)] == [True] * 2, ended.stderr


def with_optimizer(text: str, optimizer: str = OPTIMIZER) -> str:
    """The exported text with the optimizer that its reader makes."""
    return re.sub("# make the optimizer.*", optimizer, text)


def needs(library: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(library) is None, reason=f"needs {library}, which is tuned for and not needed")


@pytest.mark.slow
def test_the_loop_for_two_ranks_trains_one_model_and_looks_for_parameters_without_a_gradient(tmp_path: Path) -> None:
    values: dict[str, Value] = {"bucket_cap_mb": 10, "batch_size": 16}
    text = loop.text(exported(values=values, ranks=2, finds_unused_parameters=True))
    assert "torchrun --nproc-per-node 2" in text
    assert "model = DistributedDataParallel(model, bucket_cap_mb=10, find_unused_parameters=True)" in text

    trained(tmp_path, with_optimizer(text), END, choices=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "line"),
    [
        ({}, "with contextlib.nullcontext() if is_last else model.no_sync():"),
        ({"static_graph": True}, "with contextlib.nullcontext() if exchanges else model.no_sync():"),
        ({"strategy": "fsdp"}, "model.set_requires_gradient_sync(is_last)"),
    ],
    ids=["ddp", "static graph", "fsdp"],
)
def test_the_loop_exchanges_gradients_once_in_a_step_of_the_whole_batch(
    tmp_path: Path, own: dict[str, Value], line: str
) -> None:
    text = loop.text(exported(values={"batch_size": 16, "gradient_accumulation_steps": 4, **own}, ranks=2))
    assert line in text
    # One process takes the same steps with the samples of both: the sampler gives rank r every second one from r on.
    alone = """
seen = DistributedSampler(dataset, num_replicas=2, rank=0, drop_last=True), DistributedSampler(
    dataset, num_replicas=2, rank=1, drop_last=True)
torch.manual_seed(0)
other = Branches()
descent = torch.optim.SGD(other.parameters(), lr=0.1)
of_both = [list(one) for one in seen]
for start in range(0, 128, 64):
    rows = [index for one in of_both for index in one[start : start + 64]]
    inputs, targets = zip(*[dataset[index] for index in rows])
    loss_fn(other(torch.stack(inputs)), torch.stack(targets)).backward()
    descent.step(); descent.zero_grad()
for mine, theirs in zip(model.parameters(), other.parameters()):
    torch.testing.assert_close(mine.full_tensor() if hasattr(mine, "full_tensor") else mine, theirs)
"""

    trained(tmp_path, with_optimizer(text), alone, WHOLE if "strategy" in own else END)


@pytest.mark.slow
def test_the_loop_shares_out_the_weights_of_rank_0(tmp_path: Path) -> None:
    values: dict[str, Value] = {"strategy": "fsdp", "batch_size": 16, "gradient_accumulation_steps": 2}
    text = loop.text(exported(values=values, ranks=2))
    of_rank_0 = """
torch.manual_seed(0)
for shared, own in zip(model.parameters(), Branches().parameters(), strict=True):
    assert torch.equal(shared.full_tensor(), own), (shared.full_tensor(), own)
"""

    trained(tmp_path, with_optimizer(text, OPTIMIZER.replace("0.1", "0.0")), of_rank_0, WHOLE)


@pytest.mark.slow
@needs("lightning")
def test_parameters_without_a_gradient_are_looked_for_by_lightning_too(tmp_path: Path) -> None:
    found = exported(Framework.LIGHTNING, {"batch_size": 16}, ranks=2, finds_unused_parameters=True)
    module = """
from lightning import LightningModule

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.network = model

    def training_step(self, batch, index):
        return loss_fn(self.network(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

"""
    fit = """
trainer.fit_loop.max_epochs = 1
module = Module()
trainer.fit(module, loader)
assert trainer.global_step == 8, trainer.global_step  # of 256 samples each rank has its half
model = module.network
"""

    trained(tmp_path, module, lightning.text(found), fit, END, starter=(), choices=2)


@pytest.mark.slow
@needs("transformers")
def test_parameters_without_a_gradient_are_looked_for_by_a_trainer_too(tmp_path: Path) -> None:
    found = exported(Framework.HUGGING_FACE, {"batch_size": 16}, ranks=2, finds_unused_parameters=True)
    train = """
from transformers import Trainer

class Labelled(Branches):
    def forward(self, inputs, labels):
        return {"loss": loss_fn(super().forward(inputs), labels)}

args.max_steps, args.save_strategy, args.report_to = 4, "no", []
rows = [{"inputs": inputs, "labels": labels} for inputs, labels in dataset]
trainer = Trainer(Labelled(), args, train_dataset=rows)
trainer.train()
assert trainer.model_wrapped.find_unused_parameters
model = trainer.model
"""

    trained(tmp_path, huggingface.text(found), train, END, choices=2)


def test_a_trainer_that_would_look_for_them_by_itself_is_told_that_it_was_measured_without() -> None:
    told = huggingface.values(exported(Framework.HUGGING_FACE, ranks=2, finds_unused_parameters=False))
    earlier = huggingface.values(exported(Framework.HUGGING_FACE, ranks=2))  # of which it is not known
    alone = huggingface.values(exported(Framework.HUGGING_FACE, finds_unused_parameters=False))

    assert told["ddp_find_unused_parameters"] is False
    assert not {"ddp_find_unused_parameters"} & {*earlier, *alone}


def test_weights_that_are_shared_out_are_not_wrapped_once_more() -> None:
    text = loop.text(exported(values={"strategy": "fsdp"}, ranks=2))

    assert "init_process_group" in text and "fully_shard" in text
    assert "DistributedDataParallel" not in text


def test_each_gpu_has_a_process() -> None:
    text = loop.text(exported(device="cuda", ranks=2))

    assert "torch.cuda.set_device(torch.distributed.get_node_local_rank())" in text


def test_frameworks_that_share_the_data_out_are_given_no_sampler_for_it() -> None:
    texts = {name: module.text(exported(name, ranks=2)) for name, module in TRAINERS.items()}

    assert not [name for name, text in texts.items() if "DistributedSampler" in text]
    assert all("torchrun --nproc-per-node 2" in texts[one] for one in (Framework.HUGGING_FACE, Framework.ACCELERATE))
    on_gpus = accelerate.text(exported(Framework.ACCELERATE, device="cuda", ranks=2))
    assert "accelerate launch --multi_gpu --num_processes 2" in on_gpus
    assert lightning.arguments(exported(Framework.LIGHTNING, ranks=2))["devices"] == 2


@pytest.mark.slow
@needs("accelerate")
def test_accelerate_starts_two_processes_on_the_cpu_by_its_file(tmp_path: Path) -> None:
    values: dict[str, Value] = {"amp_dtype": "bfloat16", "batch_size": 16}
    found = exported(Framework.ACCELERATE, values, ranks=2, finds_unused_parameters=True)
    (tmp_path / "accelerate.yaml").write_text(as_yaml(accelerate.values(found)))
    start = ("-m", "accelerate.commands.launch", "--config_file", "accelerate.yaml")

    trained(tmp_path, with_optimizer(accelerate.text(found)), END, starter=start, choices=2)


SHARDED = """
import json, os
from accelerate.utils import FullyShardedDataParallelPlugin
plugin = FullyShardedDataParallelPlugin()  # of what the launcher tells its processes
told = [os.environ["ACCELERATE_USE_FSDP"], plugin.fsdp_version, plugin.reshard_after_forward]
told += [plugin.auto_wrap_policy.__name__, os.environ["WORLD_SIZE"], os.environ["ACCELERATE_MIXED_PRECISION"]]
open("rank" + os.environ["RANK"], "w").write(json.dumps(told))
"""


@pytest.mark.slow
@needs("accelerate")
@pytest.mark.parametrize(("strategy", "reshards"), [("zero2", False), ("fsdp", True)])
def test_the_file_for_accelerate_has_the_strategy(tmp_path: Path, strategy: str, reshards: bool) -> None:
    found = exported(Framework.ACCELERATE, {"strategy": strategy, "amp_dtype": "bfloat16"}, "cuda", ranks=2)
    (tmp_path / "told.py").write_text(SHARDED)
    (tmp_path / "a.yaml").write_text(as_yaml(accelerate.values(found)))
    words = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "a.yaml", "told.py"]

    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    told = [place.read_text() if (place := tmp_path / f"rank{rank}").is_file() else "" for rank in range(2)]
    expected = ["true", 2, reshards, "transformer_auto_wrap_policy", "2", "bf16"]
    assert told == [json.dumps(expected)] * 2, ended.stderr
    assert f"reshard_after_forward={reshards}" in accelerate.text(found)


@pytest.mark.parametrize("framework", [Framework.ACCELERATE, Framework.LIGHTNING, Framework.HUGGING_FACE])
@pytest.mark.parametrize(("accumulation", "is_said"), [(1, True), (4, False)])
def test_a_static_graph_is_said_only_where_the_frameworks_own_accumulation_can_begin_with_it(
    framework: Framework, accumulation: int, is_said: bool
) -> None:
    values: dict[str, Value] = {"gradient_accumulation_steps": accumulation, "static_graph": True}

    text = TRAINERS[framework].text(exported(framework, values, ranks=2))

    assert ("static_graph=True" in text) == is_said
    assert "# DistributedDataParallel" not in text
    assert "static_graph" not in TRAINERS[framework].text(exported(framework, values))  # one process replicates nothing


def test_the_static_graph_is_an_argument_that_transformers_takes() -> None:
    transformers = pytest.importorskip("transformers")
    if "ddp_static_graph" not in transformers.TrainingArguments.__dataclass_fields__:
        pytest.skip("transformers 4 has no such argument")
    found = exported(Framework.HUGGING_FACE, {"static_graph": True}, ranks=2)

    assert transformers.TrainingArguments(**huggingface.arguments(found)).ddp_static_graph is True


@pytest.mark.parametrize("framework", TRAINERS)
def test_what_would_not_share_weights_out_on_a_cpu_is_refused(framework: Framework) -> None:
    with pytest.raises(UsageError, match=f"--to {framework} cannot share weights out on a CPU"):
        exported(framework, {"strategy": "fsdp"}, ranks=2)

    exported(framework, {"strategy": "fsdp"}, ranks=1)  # has nobody to share with


def test_lightning_and_transformers_are_told_the_strategy() -> None:
    lightnings, trainers = (
        TRAINERS[one].text(exported(one, {"strategy": "zero2", "channels_last": True}, "cuda", ranks=2))
        for one in (Framework.LIGHTNING, Framework.HUGGING_FACE)
    )

    assert 'strategy=FSDPStrategy(sharding_strategy="SHARD_GRAD_OP")' in lightnings
    assert "fsdp=True" in trainers and "'reshard_after_forward': False" in trainers
    assert "one.data.contiguous()" in trainers  # which fully_shard asks for


@pytest.mark.parametrize(("values", "flags"), [({}, True), ({"strategy": "fsdp"}, False)])
def test_torchtitan_shares_weights_out_only_where_that_was_measured(values: dict[str, Value], flags: bool) -> None:
    text = torchtitan.text(exported(Framework.TORCHTITAN, values, "cuda", ranks=2))

    replicated = "--parallelism.data_parallel_replicate_degree 2 \\\n--parallelism.data_parallel_shard_degree 1"
    assert (replicated in text) == flags
    assert ("fsdp_reshard_after_forward always" in text) == (not flags)


@pytest.mark.parametrize(
    ("framework", "facts", "words"),
    [
        (Framework.TORCH, {"data": "dataloader"}, "let your dataloader() give each its share"),
        (Framework.TORCH, {"data": "iterable"}, "let your dataset() give each its share"),
        (Framework.TORCH, {"has_sampler": True}, "give each one of every 2 indices of your sampler"),
        (Framework.ACCELERATE, {"data": "dataloader"}, "let it give all samples on every rank"),
        (Framework.HUGGING_FACE, {"data": "iterable"}, "let it give all samples on every rank"),
        (Framework.LIGHTNING, {"data": "dataloader"}, "use_distributed_sampler=False"),
    ],
)
def test_data_that_the_targets_own_code_shares_out_is_not_shared_out_once_more(
    framework: Framework, facts: dict[str, Any], words: str
) -> None:
    text = PROGRAMS[framework].text(exported(framework, ranks=2, **facts))

    assert words in text
    assert "DistributedSampler(" not in text


def test_a_loss_of_the_targets_own_is_told_how_it_has_to_call_a_model_that_is_wrapped() -> None:
    own = {"check_lines": (CheckLine(name="loss", text="loss(model, batch)"),)}

    assert "Your loss has to call model(...)" in loop.text(exported(ranks=2, **own))
    assert "has to call" not in loop.text(exported(**own)) + loop.text(exported(ranks=2))


def test_a_rank_has_as_many_threads_as_when_it_was_measured() -> None:
    best = recommendation(environment=replace(ENVIRONMENT, default_threads=8), facts=replace(FACTS, ranks=2))
    best = replace(best, params=best.params | {"gradient_accumulation_steps": 2})
    texts = [loop.text(recipe(best, Framework.TORCH, count)) for count in (2, 4)]

    assert "by OMP_NUM_THREADS=8 torchrun --nproc-per-node 2," in texts[0]
    assert "by OMP_NUM_THREADS=4 torchrun --nproc-per-node 4," in texts[1]
    chosen = replace(best, params=best.params | {"num_threads": 2})
    assert "OMP_NUM_THREADS" not in loop.text(recipe(chosen, Framework.TORCH))


@pytest.mark.parametrize(("device", "ranks", "kind"), [("cuda", 2, "MULTI_GPU"), ("cpu", 1, "NO")])
def test_accelerate_reads_the_file_that_is_written(tmp_path: Path, device: str, ranks: int, kind: str) -> None:
    read = pytest.importorskip("accelerate.commands.config.config_args").load_config_from_file
    found, file = exported(Framework.ACCELERATE, {"amp_dtype": "bfloat16"}, device, ranks=ranks), tmp_path / "a.yaml"
    file.write_text(merged(file, accelerate.values(found)))

    known = read(str(file))

    assert (known.distributed_type, known.num_processes, known.num_machines) == (kind, ranks, 1)
    assert (known.mixed_precision, known.use_cpu) == ("bf16", device == "cpu")


def test_the_file_for_deepspeed_is_for_as_many_devices_as_the_global_batch_has() -> None:
    values = {"batch_size": 16, "gradient_accumulation_steps": 3}

    assert deepspeed.values(exported(Framework.DEEPSPEED, values, ranks=2))["train_batch_size"] == 96
    assert "train_batch_size" not in deepspeed.values(exported(Framework.DEEPSPEED, values))


@pytest.mark.parametrize("framework", PROGRAMS)
def test_one_process_is_told_nothing_of_ranks(framework: Framework) -> None:
    of_ranks: dict[str, Value] = {"bucket_cap_mb": 10, "gradient_as_bucket_view": True}

    text = PROGRAMS[framework].text(exported(framework, of_ranks))

    assert not re.search("torchrun|init_process_group|DistributedDataParallel|bucket", text)
