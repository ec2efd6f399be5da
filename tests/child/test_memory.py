"""Real probes tell the truth about memory: the worst batch, what grows, what the workers hold, what does not fit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
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
from tests.targets_support import HEAD
from tests.worlds import config

pytestmark = pytest.mark.slow  # real probes

Probing = Callable[..., ProbeResult]
MIB = 2**20
SHORT = ProbeBudget(
    min_seconds=0.1, max_seconds=0.3, min_warmup_seconds=0.0, max_compute_seconds=0.0, max_loader_seconds=0.0
)
STEADY = replace(SHORT, min_steps=30, max_steps=30, max_seconds=20.0)
MODEL = HEAD + """
def model(): return nn.Sequential(nn.Linear(16, 8192), nn.ReLU(), nn.Linear(8192, 2))
"""  # fmt: skip
PLAIN = "def dataset(): return TensorDataset(torch.randn(256, 16), torch.randint(2, (256,)))\n"
VARIED = """
class Rows(Dataset):
    def __len__(self): return 4096
    def __getitem__(self, index): return torch.randn(600 if index == 4095 else 1 + index // 4 % 2, 16), index % 2
def dataset(): return Rows()
def collate(samples):
    rows, labels = zip(*samples)
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor(labels)
def sampler(dataset): return range(4096)  # the longest comes after more batches than a probe trains on
def loss(model, batch): return nn.functional.cross_entropy(model(batch[0]).mean(1), batch[1])
"""
LEAKING = (
    PLAIN
    + """
kept = []
def loss(model, batch):
    hidden = model[1](model[0](batch[0]))
    kept.append(hidden)
    return nn.functional.cross_entropy(model[2](hidden), batch[1])
"""
)
PASSING_WORKERS = """
def dataloader(batch_size, num_workers):  # its workers end with each epoch
    data = TensorDataset(torch.randn(4096, 16), torch.randint(2, (4096,)))
    return torch.utils.data.DataLoader(data, batch_size=batch_size, num_workers=num_workers)
"""
LARGE_SAMPLES = """
def dataset(): return TensorDataset(torch.randn(64, 16, 50_000), torch.randint(2, (64,)))
def loss(model, batch): return nn.functional.cross_entropy(model(batch[0].mean(2)), batch[1])
"""
LITTLE = 'mount -t tmpfs -o size=8m tmpfs /dev/shm && exec "$@"'


def _probed(
    default: SubprocessLauncher,
    folder: Path,
    text: str,
    budget: ProbeBudget = SHORT,
    launcher: SubprocessLauncher | None = None,
    limit_bytes: int | None = None,
    **values: Any,
) -> ProbeResult:
    target = folder / "model.py"
    target.write_text(MODEL + text)
    (folder / "probe").mkdir(exist_ok=True)
    request = ProbeRequest(
        target=str(target), config=config(**values), device="cpu", budget=budget, memory_limit_bytes=limit_bytes
    )
    return (launcher or default).run(request, folder / "probe")


@pytest.fixture
def probe(forking_launcher: SubprocessLauncher, tmp_path: Path) -> Probing:
    """`probe(text, ...)`: the result of a target with this text, forked if no launcher is named."""
    return partial(_probed, forking_launcher, tmp_path)


def test_the_peak_covers_a_batch_that_the_window_never_saw(probe: Probing) -> None:
    calm = probe(VARIED.replace("600 if", "2 if"), batch_size=4)
    stormy = probe(VARIED, batch_size=4)

    assert stormy.measurement is not None, stormy.failure
    assert calm.measurement is not None, calm.failure
    assert stormy.measurement.shapes_vary
    assert stormy.measurement.worst_batches == 1
    hidden = 4 * 600 * 8192 * 4  # bytes of one activation, of which backward holds several
    assert stormy.measurement.memory.process_bytes > calm.measurement.memory.process_bytes + hidden
    assert "worst" in stormy.phase_seconds


def test_what_is_computed_again_is_not_held_meanwhile(probe: Probing) -> None:
    size = 34 * MIB  # of what each layer puts out: from 32 MiB on, the C library gives it back at once
    deep = (
        "def block(): return nn.Sequential(nn.Linear(40, 40), *[nn.ReLU()] * 4)\n"
        "def model(): return nn.Sequential(*(block() for _ in range(3)), nn.Linear(40, 2))\n"
        "def batch(batch_size): return torch.randn(batch_size, 40), torch.randint(2, (batch_size,))\n"
    )

    few = replace(SHORT, min_steps=2, min_warmup_steps=1, min_seconds=0.05, max_seconds=0.05)  # each touches 500 MiB
    plain, recomputed = (
        probe(deep, few, batch_size=size // (40 * 4), activation_checkpointing=on) for on in (False, True)
    )

    assert plain.measurement is not None, plain.failure
    assert recomputed.measurement is not None, recomputed.failure
    saved = plain.measurement.memory.process_bytes - recomputed.measurement.memory.process_bytes
    assert saved > 4 * size  # of the 15 there are, 7 need not be held


def test_every_micro_batch_of_the_worst_step_is_counted(probe: Probing) -> None:
    own = "def worst_batch(batch_size): return torch.randn(batch_size, 16), torch.zeros(batch_size).long()\n"

    result = probe(PLAIN + own, batch_size=8, gradient_accumulation_steps=3)

    assert result.measurement is not None, result.failure
    assert result.measurement.worst_batches == 3
    assert not result.measurement.shapes_vary


def test_a_worst_batch_that_does_not_fit_is_out_of_memory_and_says_in_which_phase(probe: Probing) -> None:
    own = "def worst_batch(batch_size): return torch.randn(2**22, 16), torch.zeros(2**22).long()\n"

    result = probe(PLAIN + own, limit_bytes=1200 * MIB, batch_size=8)

    assert result.outcome is Outcome.OOM_HOST
    assert result.failure is not None
    assert result.failure.phase == "worst"


def test_what_threads_reserve_for_their_stacks_and_never_touch_is_not_held_against_the_limit(probe: Probing) -> None:
    threads = (
        "import threading\n"
        "for _ in range(64): threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )  # 8 MiB of address space each: 512 MiB, of which 1 MiB is ever resident
    limit_bytes = (600 if torch.version.cuda is None else 1200) * MIB  # what is built for CUDA is larger by that

    result = probe(threads + PLAIN, limit_bytes=limit_bytes, batch_size=8)

    assert result.measurement is not None, result.failure
    assert result.measurement.memory.process_bytes < limit_bytes


def test_memory_that_grows_with_every_step_is_seen_and_ordinary_training_is_not_blamed(probe: Probing) -> None:
    leaking = probe(LEAKING, STEADY, batch_size=32)
    ordinary = probe(PLAIN, STEADY, batch_size=32)

    assert leaking.measurement is not None, leaking.failure
    assert ordinary.measurement is not None, ordinary.failure
    kept = 32 * 8192 * 4  # bytes that are never let go
    assert memory_growth(leaking.measurement.memory_track) > kept / 2
    assert memory_growth(ordinary.measurement.memory_track) == 0


def test_workers_that_end_with_their_epoch_are_still_counted(probe: Probing) -> None:
    result = probe(PASSING_WORKERS, batch_size=8, num_workers=1)

    assert result.measurement is not None, result.failure
    assert result.measurement.memory.workers_bytes > 10 * MIB


def test_what_shared_memory_cannot_hold_is_known_before_a_worker_starts(probe: Probing) -> None:
    little = ("unshare", "--mount", "sh", "-c", LITTLE, "sh")
    if subprocess.run((*little, "true"), capture_output=True, check=False).returncode:
        pytest.skip("a /dev/shm of its own needs Linux and the right to unshare mounts")
    command = (*little, sys.executable, "-m", "autotune.child")

    with SubprocessLauncher(command=command, isolation="fork") as launcher:
        launcher.doubted = frozenset()
        refused = probe(LARGE_SAMPLES, launcher=launcher, batch_size=4, num_workers=1)
        fits = probe(LARGE_SAMPLES, launcher=launcher, batch_size=4)

    assert refused.outcome is Outcome.OOM_SHM
    assert refused.failure is not None
    assert "num_workers 1 keeps up to 4 batches of 12" in refused.failure.message
    assert refused.failure.evidence.startswith("predicted")
    assert fits.outcome is Outcome.OK, fits.failure


def test_shared_memory_that_may_not_be_written_is_no_error_in_the_users_code(probe: Probing) -> None:
    frozen = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro tmpfs /dev/shm && exec "$@"', "sh")
    if subprocess.run((*frozen, "true"), capture_output=True, check=False).returncode:
        pytest.skip("a /dev/shm of its own needs Linux and the right to unshare mounts")
    launcher = SubprocessLauncher(command=(*frozen, sys.executable, "-m", "autotune.child"))

    result = probe(PLAIN, launcher=launcher, batch_size=4, num_workers=1)

    assert result.outcome is Outcome.OOM_SHM, result.failure


def test_the_meter_forgets_what_was_needed_before_it_was_made() -> None:
    before = bytearray(200 * MIB)
    before[::4096] = b"x" * len(before[::4096])
    earlier = MemoryMeter("cpu").read().process_bytes
    del before

    later = MemoryMeter("cpu").read().process_bytes

    assert later < earlier - 150 * MIB


def test_a_kernel_that_refuses_to_forget_the_peak_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.child.memory._CLEAR_REFS", Path("/"))  # exists, and cannot be written

    assert MemoryMeter("cpu").read().process_bytes > MIB


def test_the_meter_sees_what_was_let_go_again() -> None:
    meter = MemoryMeter("cpu")
    held = bytearray(200 * MIB)
    held[::4096] = b"x" * len(held[::4096])
    del held

    meter.phase("validate")

    assert meter.read().process_bytes > MemoryMeter("cpu").read().process_bytes + 150 * MIB
