"""What is exported for several ranks trains one model: how its processes start and share data is told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from autotune.export import accelerate, deepspeed, lightning, loop
from autotune.export.merging import merged
from autotune.export.plain import as_yaml
from autotune.knobs.wording import Framework
from tests.exporting import TRAINERS, exported

# Two processes learn from different samples: their weights are the same only if gradients are averaged.
SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = nn.Linear(4, 2)
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


@pytest.mark.slow
def test_the_loop_for_two_ranks_trains_one_model(tmp_path: Path) -> None:
    text = loop.text(exported(values={"bucket_cap_mb": 10, "batch_size": 16}, ranks=2))
    assert "torchrun --nproc-per-node 2" in text
    assert "model = DistributedDataParallel(model, bucket_cap_mb=10)" in text
    lines = [OPTIMIZER if line.startswith("# make the optimizer") else line for line in text.splitlines()]
    own = "\n".join(lines).replace("shuffle=True", "sampler=torch.utils.data.distributed.DistributedSampler(dataset)")
    (tmp_path / "train.py").write_text(SCRIPT + own + END)

    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    found = [place.read_text() if (place := tmp_path / f"rank{rank}").is_file() else "" for rank in range(2)]
    assert found == ["DistributedDataParallel"] * 2, ended.stderr


def test_weights_that_are_shared_out_are_not_wrapped_once_more() -> None:
    text = loop.text(exported(values={"strategy": "fsdp"}, ranks=2))

    assert "init_process_group" in text and "fully_shard" in text
    assert "DistributedDataParallel" not in text


def test_each_gpu_has_a_process_and_accumulation_exchanges_once() -> None:
    text = loop.text(exported(values={"gradient_accumulation_steps": 4}, device="cuda", ranks=2))

    assert "torch.cuda.set_device(torch.distributed.get_node_local_rank())" in text
    assert "model.no_sync() for all micro-batches of a step but the last" in text


def test_frameworks_that_share_the_data_out_are_given_no_sampler_for_it() -> None:
    texts = {name: module.text(exported(name, ranks=2)) for name, module in TRAINERS.items()}

    assert not [name for name, text in texts.items() if "DistributedSampler" in text]
    assert all("torchrun --nproc-per-node 2" in texts[one] for one in (Framework.HUGGING_FACE, Framework.ACCELERATE))
    on_gpus = accelerate.text(exported(Framework.ACCELERATE, device="cuda", ranks=2))
    assert "accelerate launch --multi_gpu --num_processes 2" in on_gpus
    assert lightning.arguments(exported(Framework.LIGHTNING, ranks=2))["devices"] == 2


@pytest.mark.slow
@pytest.mark.skipif(find_spec("accelerate") is None, reason="needs accelerate, which is tuned for and not needed")
def test_accelerate_starts_two_processes_on_the_cpu_by_its_file(tmp_path: Path) -> None:
    found = exported(Framework.ACCELERATE, {"amp_dtype": "bfloat16", "batch_size": 16}, ranks=2)
    own = re.sub("# make the optimizer.*", OPTIMIZER, accelerate.text(found))
    (tmp_path / "train.py").write_text(SCRIPT + own + END)
    (tmp_path / "accelerate.yaml").write_text(as_yaml(accelerate.values(found)))

    words = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "accelerate.yaml", "train.py"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    ranks = [place.read_text() if (place := tmp_path / f"rank{rank}").is_file() else "" for rank in range(2)]
    assert ranks == ["DistributedDataParallel"] * 2, ended.stderr


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


def test_one_process_is_told_nothing_of_ranks() -> None:
    text = loop.text(exported())

    assert "torchrun" not in text and "init_process_group" not in text and "DistributedDataParallel" not in text
