"""A search of a command that begins with a launcher: from its words of today to those of the answer."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from tests import commandline

START = f"{shlex.quote(sys.executable)} -m torch.distributed.run --standalone --nproc-per-node 2 train.py"
SCRIPT = """
import argparse, itertools, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
size = parser.parse_args().batch_size
dist.init_process_group("gloo")
data = TensorDataset(torch.randn(4096, 256), torch.randint(10, (4096,)))
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in itertools.count():
    for x, y in DataLoader(data, size, sampler=DistributedSampler(data), drop_last=True):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_ranks_are_searched_and_the_answer_is_the_whole_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = shlex.split("-n 1 -t 10m --global-batch free --batch 32,128 --workers 0 --threads none")

    line = ("search", *words, "--", *shlex.split(START), "--batch-size", "32")
    ended = commandline.run(tmp_path, *line, program=commandline.SHORTEST)  # three interpreters with torch a probe

    assert "--batch-size 32: taken for batch_size." in ended.stderr
    assert commandline.processes(tmp_path) == []
    assert ended.returncode == 0, ended.stderr
    best = json.loads((tmp_path / "studies" / "train" / "best.json").read_text())
    batch = best["params"]["batch_size"]
    assert (best["global_batch_size"], best["baseline_global_batch_size"]) == (2 * batch, 64)
    said = commandline.run(tmp_path, "best", "studies/train", "--command")
    assert said.stdout.strip().endswith(f"--standalone --nproc-per-node 2 train.py --batch-size {batch}")
    dry = commandline.run(tmp_path, "run", "studies/train", "--dry-run")
    assert shlex.split(dry.stdout)[-6:] == [
        "--standalone",
        "--nproc-per-node",
        "2",
        "train.py",
        "--batch-size",
        str(batch),
    ]
