"""Probes on a real CUDA device. Not run where the suite runs; `make gpu-test` runs them wherever one is at hand."""

import time

import pytest
import torch

from autotune.child import device as devices
from autotune.child.clock import EventClock
from autotune.child.memory_trace import track_on
from autotune.child.warmup import growth_on
from autotune.core.requests import InspectRequest, ProbeBudget, ProbeRequest
from autotune.core.results import Outcome
from autotune.launch.subprocess import SubprocessLauncher
from tests.worlds import config

SHORT = ProbeBudget(min_seconds=0.3, max_seconds=1.0, min_warmup_seconds=0.1)
MIB = 2**20
TARGET = """
import torch
from torch import nn

def model():
    body = nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.Flatten()
    return nn.Sequential(*body, nn.Linear(64 * 28 * 28, 10))

def dataset():
    return torch.utils.data.TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(10, (2048,)))
"""
DEEP = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(16, 4096), *[nn.Linear(4096, 4096) for _ in range(12)], nn.Linear(4096, 10))

def dataset():
    return torch.utils.data.TensorDataset(torch.randn(4096, 16), torch.randint(10, (4096,)))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(TARGET)
    return tmp_path


def _probe(place, name="probe", limit=None, **values):
    folder = place / name
    folder.mkdir()
    request = ProbeRequest(
        target="model.py", config=config(**values), device="cuda:0", budget=SHORT, memory_limit_bytes=limit
    )
    return SubprocessLauncher().run(request, folder)


@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_every_dtype_and_layout_is_measured(place, dtype, channels_last):
    result = _probe(place, batch_size=64, amp_dtype=dtype, channels_last=channels_last, num_workers=2)

    assert result.outcome is Outcome.OK, result.failure
    memory = result.measurement.memory
    assert 0 < memory.allocated_bytes <= memory.reserved_bytes <= memory.device_used_bytes
    assert memory.allocator_retries == 0
    assert len(result.measurement.step_seconds) == len(result.measurement.samples)


def test_the_window_by_events_agrees_with_the_wall(place):
    a = torch.randn(2048, 2048, device="cuda")
    torch.cuda.synchronize()
    clock = EventClock("cuda:0")
    began = time.perf_counter()
    clock.mark()
    for _ in range(50):
        a = (a @ a).clamp(-1, 1)
        clock.mark()
    intervals = clock.intervals()
    wall = time.perf_counter() - began

    assert sum(intervals) == pytest.approx(wall, rel=0.05)


def test_computing_takes_the_time_of_the_device_and_hides_what_the_host_waits_for(place):
    (place / "model.py").write_text(DEEP)

    result = _probe(place, batch_size=1024)

    assert result.outcome is Outcome.OK, result.failure
    measured = result.measurement
    assert measured.compute_only.samples_per_second == pytest.approx(measured.samples_per_second, rel=0.2)
    assert measured.data_wait_share < 0.2
    assert not measured.noisy


def test_the_track_of_memory_is_that_of_tensors(place):
    held = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    track = track_on("cuda:0")

    track.step()
    del held
    track.step()

    (_, before), (_, after) = track.readings
    assert before - after == 64 * MIB


def test_a_warm_up_sees_memory_that_the_allocator_asks_for(place):
    read = growth_on("cuda:0")

    before = read()
    held = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
    after = read()

    assert after[0] > before[0]
    assert held.is_cuda


def test_memory_that_runs_out_under_a_fraction_is_an_outcome(place):
    """What the larger batch keeps for its backward pass is 870 MiB, and 390 more are its first gradient."""
    small = _probe(place, "small", batch_size=8, limit=1000 * MIB)
    large = _probe(place, "large", batch_size=2048, limit=1000 * MIB)

    assert small.outcome is Outcome.OK, small.failure
    assert large.outcome is Outcome.OOM_DEVICE


def test_the_device_is_described(place):
    inspection = SubprocessLauncher().run(InspectRequest(target="model.py"), place)

    assert inspection.failure is None, inspection.failure
    environment = inspection.environment
    assert environment.device == "cuda:0"
    assert environment.device_bytes == torch.cuda.get_device_properties(0).total_memory
    assert environment.native_dtypes == devices.native_dtypes("cuda:0")


def test_a_device_number_that_is_not_there_is_refused(place):
    inspection = SubprocessLauncher().run(InspectRequest(device="cuda:99"), place)

    assert inspection.outcome is Outcome.ENVIRONMENT
