"""The dry run on a real CUDA device: fake tensors there foretell what the caching allocator then gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autotune.launch.subprocess import SubprocessLauncher
from autotune.requests import DryRunRequest, ProbeBudget, ProbeRequest
from autotune.results import Outcome
from tests.worlds import config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and torch sees none"),
]
SHORT = ProbeBudget(min_seconds=0.3, max_seconds=1.0, min_warmup_seconds=0.1)
LARGEST = 32768  # takes gigabytes: the products' workspaces (32 MiB on Hopper, forward and backward) are not foretold
TARGET = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024), nn.GELU(), nn.Linear(1024, 10))

def dataset():
    return torch.utils.data.TensorDataset(torch.randn(32768, 1024), torch.randint(10, (32768,)))

def optimizer(params):
    return torch.optim.AdamW(params)
"""


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_the_allocator_s_peak_is_foretold_within_ten_per_cent(tmp_path: Path, dtype: str | None) -> None:
    (tmp_path / "model.py").write_text(TARGET)
    target, values = str(tmp_path / "model.py"), config(batch_size=LARGEST, amp_dtype=dtype)
    request = DryRunRequest(
        target=target, config=values, arms=({"amp_dtype": dtype},), batches=(2048, 8192, LARGEST), device="cuda:0"
    )
    places = [tmp_path / name for name in ("dry", "real")]
    for place in places:
        place.mkdir()

    foretold = SubprocessLauncher().dry_run(request, places[0])
    real = SubprocessLauncher().probe(
        ProbeRequest(target=target, config=values, device="cuda:0", budget=SHORT), places[1]
    )

    assert foretold.outcome is Outcome.OK
    assert real.measurement is not None
    allocated = real.measurement.memory.allocated_bytes
    assert foretold.arms[0].peak_bytes(LARGEST) == pytest.approx(allocated, rel=0.1), foretold.arms[0].reason
