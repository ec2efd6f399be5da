"""Memory on a real CUDA device: what a probe measures there, and that what it allows survives a whole epoch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from autotune.child.memory import MemoryMeter
from autotune.core.memory_growth import memory_growth
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Outcome, ProbeResult
from autotune.launch.subprocess import SubprocessLauncher
from autotune.objectives.verdict import judge
from tests.worlds import config, environment, study_request

MIB, GIB = 2**20, 2**30
DEVICE = "cuda:0"
LIMIT_BYTES = 4 * GIB
SHORT = ProbeBudget(min_seconds=0.3, max_seconds=1.0, min_warmup_seconds=0.1)
STEADY = replace(SHORT, min_steps=40, max_steps=40, max_seconds=20.0)
BATCHES = [2**exponent for exponent in range(4, 15)]
MODEL = """
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

def model():
    return nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
"""
IMAGES = "def dataset(): return TensorDataset(torch.randn(16384, 3, 32, 32), torch.randint(10, (16384,)))\n"
LEAKING = """
kept = []
def loss(model, batch):
    output = model[:4](batch[0])
    kept.append(output.detach())
    return nn.functional.cross_entropy(model[4:](output), batch[1])
"""
VARIED = """
class Pictures(Dataset):
    def __len__(self): return 4096
    def __getitem__(self, index):
        side = 512 if index == 4095 else 16 + 16 * (index // 4 % 2)
        return torch.randn(3, side, side), index % 10
def dataset(): return Pictures()
def sampler(dataset): return range(4096)
def collate(samples):
    side = max(image.shape[-1] for image, _ in samples)
    images = [nn.functional.pad(image, (0, side - image.shape[-1]) * 2) for image, _ in samples]
    return torch.stack(images), torch.tensor([label for _, label in samples])
"""
PLAIN_LOOP = """
import sys
import torch
from torch.utils.data import DataLoader
import model as target
batch_size, limit_bytes = map(int, sys.argv[1:])
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(limit_bytes / total, 0)
net = target.model().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
seen = 0
for images, labels in DataLoader(target.dataset(), batch_size=batch_size, shuffle=True):
    torch.nn.functional.cross_entropy(net(images.cuda()), labels.cuda()).backward()
    optimizer.step()
    optimizer.zero_grad()
    seen += len(images)
print(seen)
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small_card() -> Iterator[None]:
    """A gibibyte for this process."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(GIB / total, 0)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    torch.cuda.empty_cache()


def _probe(text: str, budget: ProbeBudget = SHORT, limit: int | None = None, **values: Any) -> ProbeResult:
    Path("model.py").write_text(MODEL + text)
    folder = Path(f"probe-{len(list(Path().glob('probe-*')))}").absolute()
    folder.mkdir()
    request = ProbeRequest(
        target="model.py", config=config(**values), device=DEVICE, budget=budget, memory_limit_bytes=limit
    )
    return SubprocessLauncher().run(request, folder)


def _epoch(batch_size: int) -> subprocess.CompletedProcess[str]:
    words = (sys.executable, "-c", PLAIN_LOOP, str(batch_size), str(LIMIT_BYTES))
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_what_was_let_go_before_the_end_still_counts_and_so_does_what_is_not_the_allocators() -> None:
    meter = MemoryMeter(DEVICE)
    held = torch.empty(GIB, dtype=torch.uint8, device=DEVICE)
    del held
    torch.cuda.empty_cache()

    peak = meter.read()

    assert peak.reserved_bytes is not None
    assert peak.reserved_at_end_bytes is not None
    assert peak.reserved_bytes >= GIB > peak.reserved_at_end_bytes
    assert peak.bytes > peak.reserved_bytes  # the context at least is not the allocator's


def test_a_process_that_has_not_touched_the_card_yet_has_peaks_too() -> None:
    words = f"from autotune.child.memory import MemoryMeter; print(MemoryMeter({DEVICE!r}).read().allocated_bytes)"

    fresh = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)

    assert fresh.stdout == "0\n", fresh.stderr


def _fragment() -> torch.Tensor:
    """Leaves freed blocks that only a flush of the cache makes into what is asked for next."""
    small = [torch.empty(48 * MIB, dtype=torch.uint8, device=DEVICE) for _ in range(18)]
    small.clear()
    return torch.empty(768 * MIB, dtype=torch.uint8, device=DEVICE)


def test_only_the_retries_inside_the_window_count(small_card: None) -> None:
    meter = MemoryMeter(DEVICE)
    meter.phase("warm-up")
    _fragment()
    meter.phase("measure")
    before = meter.read().allocator_retries
    torch.cuda.empty_cache()
    _fragment()
    meter.phase("validate")

    torch.cuda.empty_cache()
    _fragment()

    assert before == 0
    assert meter.read().allocator_retries == 1


def test_what_is_allowed_under_a_limit_survives_an_epoch_and_twice_what_is_refused_does_not() -> None:
    small = study_request(
        environment=environment(device_bytes=LIMIT_BYTES),
        memory_limit_bytes=LIMIT_BYTES,
        headroom_bytes=LIMIT_BYTES // 20,
    )
    allowed, refused = 0, 0
    for batch_size in BATCHES:
        result = _probe(IMAGES, limit=LIMIT_BYTES, batch_size=batch_size)
        assert result.outcome in (Outcome.OK, Outcome.OOM_DEVICE), result.failure
        if not judge(result, small).feasible:
            refused = batch_size
            break
        allowed = batch_size

    survived, died = _epoch(allowed), _epoch(2 * refused)

    assert survived.stdout == "16384\n", survived.stderr
    assert died.returncode != 0
    assert "OutOfMemoryError" in died.stderr


def test_the_peak_covers_a_batch_that_the_window_never_saw() -> None:
    result = _probe(VARIED, replace(SHORT, max_loader_seconds=0.0, max_steps=30), batch_size=4)

    assert result.measurement is not None, result.failure
    assert result.measurement.shapes_vary
    assert result.measurement.worst_batches == 1
    assert (result.measurement.memory.allocated_bytes or 0) > 4 * 64 * 512 * 512 * 4  # one activation of it


def test_a_leak_is_measured_to_the_byte() -> None:
    leaking = _probe(IMAGES + LEAKING, STEADY, batch_size=64)
    ordinary = _probe(IMAGES, STEADY, batch_size=64)

    assert leaking.measurement is not None, leaking.failure
    assert ordinary.measurement is not None, ordinary.failure
    assert memory_growth(leaking.measurement.memory_track) == pytest.approx(64 * 64 * 32 * 32 * 4, rel=0.01)
    assert memory_growth(ordinary.measurement.memory_track) == 0
