"""`autotune profile` on a real CUDA device: events add up to the step, and a read that waits is found."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from autotune.core.results import Outcome
from autotune.launch.subprocess import SubprocessLauncher
from autotune.profile.judge import expensive_lines
from autotune.profile.measuring.sizes import Product, faster_larger
from autotune.profile.memory_judge import peak_bytes, rows
from autotune.profile.records import ProfileRequest, ProfileResult
from autotune.profile.snapshot import OUT_OF_MEMORY
from tests.worlds import config

READING = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model():
    return nn.Sequential(nn.Linear(4096, 8192), nn.ReLU(inplace=True), nn.Linear(8192, 4096), nn.Linear(4096, 10))
def dataset(): return TensorDataset(torch.randn(4096, 4096), torch.randint(10, (4096,)))
def loss(model, batch):
    value = nn.functional.cross_entropy(model(batch[0]), batch[1])
    print(value.item())  # planted
    torch.cuda.empty_cache()
    return value
"""

ODD = """
import torch
from torch import nn

def model(): return nn.Linear(768, 50257, bias=False).bfloat16()
def batch(batch_size): return torch.randn(batch_size, 768), torch.randint(50257, (batch_size,))
def loss(model, batch):
    scores = model(batch[0].bfloat16())
    return nn.functional.cross_entropy(scores, batch[1])
"""


def profiled(folder: Path, text: str, **changes: Any) -> ProfileResult:
    (folder / "model.py").write_text(text)
    usual = {"target": str(folder / "model.py"), "config": config(batch_size=512), "device": "cuda:0", "seconds": 1.0}
    asked = ProfileRequest(**(usual | changes))
    result = SubprocessLauncher().run(asked, folder)
    assert result.outcome is Outcome.OK, result.failure
    return result


def place(text: str, words: str) -> str:
    """Where the loss says so."""
    return next(f"model.py:{at} in loss" for at, line in enumerate(text.splitlines(), 1) if words in line)


def test_parts_add_up_to_the_step_and_the_forward_pass_takes_time_of_the_device(tmp_path: Path) -> None:
    result = profiled(tmp_path, READING)

    parts = {one.part: one.seconds for one in result.parts}
    assert sum(parts.values()) == pytest.approx(sum(result.step_seconds) / result.steps)
    assert parts["copy"] > 0 and parts["backward"] > parts["optimizer"]
    assert result.work is not None and 0 < (result.work.flops or 0) / result.seconds < result.work.peak_flops


def test_a_read_that_waits_for_the_device_and_an_emptied_cache_are_found(tmp_path: Path) -> None:
    kinds = {one.kind: one for one in expensive_lines(profiled(tmp_path, READING))}

    assert kinds["host read"].place.endswith(place(READING, "value.item()"))
    assert kinds["host read"].what == ".item()"
    assert "cache" in kinds


def test_a_boolean_mask_waits_for_the_device_and_is_found(tmp_path: Path) -> None:
    text = READING.replace("    torch.cuda.empty_cache()\n", "    chosen = value.new_ones(9)[batch[1][:9] > 4]\n")

    found = [one for one in profiled(tmp_path, text).slow_lines if one.what == "a boolean mask"]

    assert [one.place.split("/")[-1] for one in found] == [place(text, "chosen = ")]


def test_memory_that_is_locked_in_every_step_is_found(tmp_path: Path) -> None:
    text = READING.replace("torch.cuda.empty_cache()", "torch.ones(2**22).pin_memory()")

    found = [one for one in profiled(tmp_path, text).slow_lines if one.kind == "pinning"]

    assert [one.place.split("/")[-1] for one in found] == [place(text, ".pin_memory()")]


def test_an_odd_vocabulary_is_found_with_the_line_that_multiplies_by_it(tmp_path: Path) -> None:
    found = [one for one in profiled(tmp_path, ODD, config=config(batch_size=4096)).slow_lines if one.kind == "sizes"]

    assert [one.place.split("/")[-1] for one in found] == [place(ODD, "scores = ")]
    assert "instead of 768 × 50,257" in found[0].what


def test_traces_and_a_snapshot_of_memory_are_written(tmp_path: Path) -> None:
    (tmp_path / "found").mkdir()

    result = profiled(tmp_path, READING, output=str(tmp_path / "found"))

    assert {"trace.json", "memory.pickle"} == {path.name for path in (tmp_path / "found").iterdir()}
    assert "autotune::backward" in (tmp_path / "found" / "trace.json").read_text()
    assert result.parts


GREEDY = """
import torch
from torch import nn

def model(): return nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
def batch(batch_size): return torch.zeros(1, 1024).expand(batch_size, 1024)
def loss(model, batch):
    kept = [batch.repeat(64, 1) for _ in range(64)]  # planted
    return model(torch.cat(kept)).mean()
"""


def test_what_was_alive_when_memory_ran_out_is_told_by_line_and_kept_for_a_viewer(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(GREEDY)
    (tmp_path / "found").mkdir()
    asked = ProfileRequest(
        target=str(tmp_path / "model.py"), config=config(batch_size=512), device="cuda:0", seconds=1.0,
        memory_limit_bytes=4 * 2**30, output=str(tmp_path / "found"),
    )  # fmt: skip

    result = SubprocessLauncher().run(asked, tmp_path)

    assert result.outcome is Outcome.OOM_DEVICE
    assert result.failure is not None
    line = next(number for number, text in enumerate(GREEDY.splitlines(), 1) if "planted" in text)
    assert result.failure.sites[0].place.endswith(f"model.py:{line}")
    assert result.failure.sites[0].bytes > 2**30
    kept = pickle.loads((tmp_path / "found" / OUT_OF_MEMORY).read_bytes())
    assert kept["segments"]


def test_the_window_for_nsight_opens_and_closes_without_it(tmp_path: Path) -> None:
    assert profiled(tmp_path, READING, extent="captured").parts == ()


def test_the_tensors_of_a_step_explain_the_peak_of_the_allocator(tmp_path: Path) -> None:
    use = profiled(tmp_path, READING).memory

    assert use is not None and use.tensors is not None
    allocated = use.peak.allocated_bytes
    assert allocated is not None
    assert 0.85 * allocated < use.tensors.bytes <= allocated  # besides, the workspaces of cuBLAS: 65 MiB on an H200
    found = dict(rows(use))
    assert sum(found.values()) == peak_bytes(use)
    assert found["context"] > 100 * 2**20
    assert abs(found["not explained"]) <= 0.03 * peak_bytes(use)


def test_a_vocabulary_that_is_no_multiple_of_eight_is_slower_than_a_padded_one() -> None:
    """That of GPT-2, in the sizes of its head (Karpathy, nanoGPT: 50,304 instead of 50,257)."""
    other, seconds = faster_larger(Product(4096, 768, 50_257, torch.bfloat16), "cuda", 0.01)

    assert other in (Product(4096, 768, columns, torch.bfloat16) for columns in (50_264, 50_304))
    assert seconds > 0
