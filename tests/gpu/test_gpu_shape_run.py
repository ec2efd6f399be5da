"""The shape run on a real CUDA device: fake tensors there predict what the caching allocator then gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Outcome
from autotune.launch.subprocess import SubprocessLauncher
from autotune.memory.records import ShapeRunRequest
from tests.worlds import config

SHORT = ProbeBudget(min_seconds=0.3, max_seconds=1.0, min_warmup_seconds=0.1)
TARGET = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024), nn.GELU(), nn.Linear(1024, 10))

def batch(batch_size, device):
    return torch.zeros(batch_size, 1024, device=device), torch.zeros(batch_size, dtype=torch.int64, device=device)

def loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])

def optimizer(params):
    return torch.optim.AdamW(params)
"""


CONTEXT = """
import torch
product = torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
free, total = torch.cuda.mem_get_info()
print(total - free - torch.cuda.memory_reserved() + torch.cuda.memory_allocated() - 3 * 64 * 64 * 4)
"""
LARGE = 65536  # so that scratch of kernels, which does not grow with the batch for ever, is a small part


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_the_allocator_s_peak_is_foretold_within_ten_per_cent(tmp_path: Path, dtype: str | None) -> None:
    (tmp_path / "model.py").write_text(TARGET)
    target, values = str(tmp_path / "model.py"), config(batch_size=LARGE, amp_dtype=dtype)
    request = ShapeRunRequest(
        target=target, config=values, arms=({"amp_dtype": dtype},), batches=(512, 2048, 8192, LARGE), device="cuda:0"
    )
    places = [tmp_path / name for name in ("shapes", "real")]
    for place in places:
        place.mkdir()

    foretold = SubprocessLauncher().run(request, places[0])
    real = SubprocessLauncher().run(
        ProbeRequest(target=target, config=values, device="cuda:0", budget=SHORT), places[1]
    )

    assert foretold.outcome is Outcome.OK
    assert real.measurement is not None
    memory, tensors = real.measurement.memory, foretold.arms[0].peak_bytes(LARGE)
    assert tensors is not None, foretold.arms[0].reason
    besides = (memory.device_used_bytes or 0) - (memory.reserved_at_end_bytes or 0)
    assert foretold.base_bytes + tensors == pytest.approx((memory.allocated_bytes or 0) + besides, rel=0.1)


def test_what_matrix_products_keep_for_themselves_is_not_training_s_and_is_foretold(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(TARGET)
    values = config(batch_size=64)
    request = ShapeRunRequest(
        target=str(tmp_path / "model.py"), config=values, arms=({"amp_dtype": None},), batches=(64,), device="cuda:0"
    )
    (tmp_path / "shapes").mkdir()

    foretold = SubprocessLauncher().run(request, tmp_path / "shapes")

    assert foretold.outcome is Outcome.OK
    context = subprocess.run([sys.executable, "-c", CONTEXT], capture_output=True, text=True, check=True)
    assert foretold.base_bytes >= int(context.stdout)
