"""Two ranks of torchrun on two GPUs: not run yet."""

from pathlib import Path

import pytest
import torch

from tests.commandline import run_here

SCRIPT = """
import os
import torch
from torch import distributed, nn
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
distributed.init_process_group("nccl")
model = nn.parallel.DistributedDataParallel(nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).cuda())
data = torch.utils.data.TensorDataset(torch.randn(8192, 1024), torch.randn(8192, 1024))
sampler = torch.utils.data.DistributedSampler(data)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(1000):
    for inputs, targets in torch.utils.data.DataLoader(data, batch_size=64, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
"""
# NCCL itself refuses two ranks on one GPU.
SHARED = SCRIPT.replace("torch.cuda.set_device(device)", "").replace('"nccl"', '"gloo"')


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("chooses", [True, False], ids=["each its own", "both the first"])
def test_each_rank_is_measured_on_the_gpu_of_its_number(tmp_path: Path, chooses: bool) -> None:
    (tmp_path / "train.py").write_text(SCRIPT if chooses else SHARED)

    told = run_here(tmp_path, "check", "--", "torchrun", "--nproc-per-node", "2", "train.py")

    assert (told.returncode == 0) is chooses, told.stdout + told.stderr
    assert chooses or "the GPU of its number is cuda:1" in told.stdout + told.stderr
