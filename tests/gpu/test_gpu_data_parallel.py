"""`torch.nn.DataParallel` in one process against one process for each of two GPUs: not run yet."""

from pathlib import Path

import pytest
import torch

from tests.commandline import run_here

TARGET = """
import torch
from torch import nn
def model(): return nn.DataParallel(nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))))
def dataset(): return torch.utils.data.TensorDataset(torch.randn(8192, 1024), torch.randn(8192, 1024))
def loss(model, batch): return nn.functional.mse_loss(model(batch[0]), batch[1])
baseline = {"batch_size": 256}
"""


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_both_are_measured_on_the_same_two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    (tmp_path / "model.py").write_text(TARGET)

    told = run_here(tmp_path, "scale", "model.py", "--ranks", "1,2", "--rounds", "2", "--device", "cuda")

    assert told.returncode == 0, told.stderr
    assert "One rank is torch.nn.DataParallel on all devices that it sees" in told.stdout
