"""What the launcher reads of a real GPU while a real probe measures on it."""

import subprocess
import sys
import time

import pytest
import torch

from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Outcome
from autotune.launch.subprocess import SubprocessLauncher
from autotune.machine.nvml import find_gpu, library, read_gpu
from tests.worlds import config

LONG_ENOUGH = ProbeBudget(min_seconds=3.0, max_seconds=5.0)
TARGET = """
import torch
from torch import nn

def model():
    return nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(8)])

def batch(batch_size, device):
    return torch.randn(batch_size, 4096, device=device)

def loss(model, batch):
    return model(batch).square().mean()
"""
HOLD = "import torch, time; kept = torch.ones(1, device='cuda'); print('here', flush=True); time.sleep(120)"


@pytest.fixture
def uuid():
    return str(torch.cuda.get_device_properties(0).uuid)


def _probe(folder, monkeypatch, uuid):
    monkeypatch.chdir(folder)
    (folder / "model.py").write_text(TARGET)
    request = ProbeRequest(
        target="model.py", config=config(batch_size=1024), device="cuda:0", device_uuid=uuid, budget=LONG_ENOUGH
    )
    result = SubprocessLauncher().run(request, folder)
    assert result.outcome is Outcome.OK, result.failure
    return result


def test_a_card_that_computes_is_seen_to(tmp_path, monkeypatch, uuid):
    gpu = find_gpu(library(), uuid)
    before = set(read_gpu(library(), gpu).processes or ())  # in a container perhaps we, unrecognised

    result = _probe(tmp_path, monkeypatch, uuid)

    use = result.gpu
    seconds = sum(result.measurement.step_seconds)
    assert use.readings >= 0.5 * seconds * 5
    assert use.utilization > 0.5
    assert use.used_bytes > result.measurement.memory.reserved_bytes
    assert use.energy_joules == pytest.approx(use.power_watts * seconds, rel=0.3)
    assert result.samples_per_joule > 0
    assert 0 < use.sm_clock_mhz[0] <= use.sm_clock_mhz[1]
    assert set(use.foreign_processes) <= before


def test_who_was_on_the_card_before_the_probe_is_told(tmp_path, monkeypatch, uuid):
    """True in a container as well, where process numbers are the host's."""
    neighbour = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE)
    try:
        neighbour.stdout.readline()
        result = _probe(tmp_path, monkeypatch, uuid)
    finally:
        neighbour.kill()
        neighbour.communicate()

    assert len(result.gpu.foreign_processes) >= 1


def test_a_reading_takes_a_fraction_of_the_time_between_two(uuid):
    nvml = library()
    gpu = find_gpu(nvml, uuid)
    read_gpu(nvml, gpu)
    began = time.perf_counter()
    for _ in range(10):
        reading = read_gpu(nvml, gpu)
    seconds = (time.perf_counter() - began) / 10

    assert seconds < 0.05
    assert None not in (reading.utilization, reading.used_bytes, reading.power_watts, reading.sm_clock_mhz)
