"""Launchers in real probes: their ranks are measured together, the right one is blamed, and none is left behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from autotune.core.records import Config, Value
from autotune.core.requests import InspectRequest, ProbeBudget, ProbeRequest
from autotune.core.results import Inspection, Outcome, ProbeResult
from autotune.failures.log_excerpt import excerpt
from autotune.knobs import defaults
from autotune.launch.base import LOG
from autotune.launch.subprocess import SubprocessLauncher
from autotune.precision.records import PrecisionCheckRequest, PrecisionCheckResult
from tests.faults.conftest import MARK, marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is left of a probe is looked up in /proc")
SHORT = ProbeBudget(min_warmup_seconds=0.05, min_seconds=0.1, max_seconds=0.3, max_loader_seconds=0.1)
# With all steps but the first, which ranks on a busy machine come to late.
IMPATIENT = ProbeBudget(first_step_deadline_seconds=60.0, step_deadline_seconds=5.0)
TORCHRUN = "python -m torch.distributed.run --standalone --nproc-per-node 2"
ACCELERATE = "python -m accelerate.commands.launch"
HEAD = """
import itertools, os, sys, time, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
size = int(sys.argv[1])
data = TensorDataset(torch.randn(256, 4), torch.randint(2, (256,)))
"""
PARALLEL = """
dist.init_process_group("gloo")
rank = dist.get_rank()
assert sys.argv[2:] == ["--lr", "1 2"] and "PYTHONSAFEPATH" not in os.environ, sys.argv
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """
for number in itertools.count():
    for x, y in DataLoader(data, size, sampler=DistributedSampler(data), drop_last=True):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        {fault}
"""
TRAIN = HEAD + PARALLEL + LOOP
# Rank 0 waits for a step of rank 1, which takes all of its own steps alone.
MEASURED_ALONE = (
    HEAD + PARALLEL + "for _ in range(2000 * rank): model.module(data[:size][0]).sum().backward(); optimizer.step()\n"
    "if rank == 1: time.sleep(1)\n"
    "if rank == 1: {end}\n" + LOOP.replace("{{fault}}", "")
).replace("{fault}", "")
ACCELERATED = """
from accelerate import Accelerator
accelerator = Accelerator()
model = nn.Linear(4, 2)
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, size, drop_last=True)
)
for epoch in itertools.count():
    for x, y in loader:
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
"""
Probe = Callable[..., ProbeResult]


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SubprocessLauncher]:
    monkeypatch.chdir(tmp_path)
    with SubprocessLauncher(environ={MARK: str(tmp_path)}) as launcher:
        yield launcher
    assert marked(tmp_path) == []


@pytest.fixture
def probe(launcher: SubprocessLauncher, tmp_path: Path) -> Probe:
    def run(text: str, start: str = TORCHRUN, budget: ProbeBudget = SHORT, **values: Value) -> ProbeResult:
        (tmp_path / "train.py").write_text(text)
        (tmp_path / "probe").mkdir()
        config = Config(values=defaults() | {"batch_size": 8} | values)
        target = f"-- {start} train.py {{batch_size=8}} --lr '1 2'"
        return launcher.run(ProbeRequest(target=target, config=config, device="cpu", budget=budget), tmp_path / "probe")

    return run


def test_two_ranks_are_measured_together(probe, tmp_path, monkeypatch):
    (system := tmp_path / "system").mkdir()
    monkeypatch.setenv("TMPDIR", str(system))

    result = probe(TRAIN.format(fault=""), batch_size=16)

    assert result.outcome is Outcome.OK, result.failure
    assert set(result.measurement.samples) == {2 * 16 * result.measurement.steps_per_block}
    assert (result.isolation, result.isolation_reason) == ("fresh", "")
    left = {path.name for path in (tmp_path / "probe").iterdir()} - {"compiled"}  # by torch, in a study beside it
    assert left == {LOG, "request.json", "result.json"}
    assert list(system.iterdir()) == []  # torchrun would leave a folder there, for logs


def test_what_ranks_do_today_is_looked_at_once(launcher, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN.format(fault=""))
    (tmp_path / "probe").mkdir()
    request = InspectRequest(target=f"-- {TORCHRUN} train.py {{batch_size=8}} --lr '1 2'", device="cpu")

    found: Inspection = launcher.run(request, tmp_path / "probe")

    assert found.outcome is Outcome.OK, found.failure
    assert (found.facts.name, found.facts.ranks, found.facts.baseline["batch_size"]) == ("Linear", 2, 8)
    assert "2 ranks, started by torchrun; batch_size is that of one" in [one.text for one in found.facts.check_lines]


def test_losses_of_ranks_are_compared_as_means(launcher, tmp_path):
    text = TRAIN.format(fault="").replace(
        "nn.functional.cross_entropy(model(x), y)", "(model(x).mean() * 0 + 1 + rank)"
    )
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "probe").mkdir()
    config = Config(values=defaults() | {"batch_size": 8})
    target = f"-- {TORCHRUN} train.py {{batch_size=8}} --lr '1 2'"
    request = PrecisionCheckRequest(
        target=target, reference=config, candidate=config, device="cpu", steps=5, seeds=(0,), max_seconds=60.0,
        roles=("reference",),
    )  # fmt: skip

    found: PrecisionCheckResult = launcher.run(request, tmp_path / "probe")

    assert found.outcome is Outcome.OK, found.failure
    assert [(run.role, run.losses) for run in found.runs] == [("reference", (1.5,) * 5)]


@pytest.mark.parametrize(
    ("text", "outcome", "words"),
    [
        (HEAD + PARALLEL + "if rank == 1: raise ValueError('mine')\n" + LOOP.format(fault=""), "user-error",
         "rank 1 of 2: train.py:14 in <module>: ValueError: mine"),
        (TRAIN.format(fault="if rank == 1: raise MemoryError"), "oom-host", "rank 1 of 2: MemoryError"),
        (TRAIN.format(fault="if rank == 1: os.kill(os.getpid(), 9)"), "crashed",
         "rank 1 of 2 ended without a result: killed by SIGKILL"),
        (TRAIN.format(fault="if rank == 1: os.kill(os.getpid(), 11)"), "crashed",
         "rank 1 of 2 ended without a result: killed by SIGSEGV"),
        (TRAIN.format(fault="if rank == 1 and number > 1: sys.exit(0)"), "user-error",
         "autotune ends it by itself. Rank 0 has not ended: if it takes more steps, give all ranks as many batches"),
        (MEASURED_ALONE.format(end="sys.exit(0)"), "user-error",
         "rank 1 of 2: train.py ended with exit status 0 before all ranks were measured. It has probably too little to "
         "do, or takes fewer steps than other ranks. Let it train for longer: autotune ends it by itself. Rank 0 has "),
        (MEASURED_ALONE.format(end="sys.exit(3)"), "user-error",
         "rank 1 of 2: train.py ended with exit status 3 before all ranks were measured. It probably met an error "),
        (MEASURED_ALONE.format(end="raise ValueError('late')"), "user-error",
         "rank 1 of 2: train.py:16 in <module>: ValueError: late"),
        (MEASURED_ALONE.format(end="os.kill(os.getpid(), 9)"), "crashed",
         "rank 1 of 2 ended without a result: killed by SIGKILL"),
        (TRAIN.format(fault="if rank == 1: os.kill(os.getpid(), 40)"), "crashed",
         "rank 1 of 2 ended without a result: killed by signal 40"),
        # Its ranks go on, and wait for nobody.
        (TRAIN.format(fault="if rank == 1: os.kill(os.getppid(), 9); time.sleep(60)"), "crashed",
         "torchrun ended without a result: killed by SIGKILL"),
        (TRAIN.format(fault="sys.exit(3)"), "user-error", "train.py ended with exit status 3 after 1 optimizer step,"),
        (TRAIN.replace("size,", "4 + 4 * (rank == 0),").format(fault=""), "user-error",
         "rank 1 of 2: train.py was given batch_size 8 and trained with batch_size 4"),
        ("raise ValueError('both')\n", "user-error", "train.py:1 in <module>: ValueError: both"),
    ],
    ids=[
        "raises", "memory", "killed", "segfault", "ends first", "ends once measured", "exits once measured",
        "raises once measured", "killed once measured", "real-time signal", "launcher killed", "exits",
        "ignores its argument", "all of them",
    ],
)  # fmt: skip
def test_the_rank_that_failed_first_is_told(probe, text, outcome, words):
    result = probe(text)

    assert result.outcome == outcome, result.failure
    assert words in result.failure.message


def test_a_launcher_that_would_start_its_ranks_again_does_not(probe):
    result = probe(TRAIN.format(fault="if rank == 1: os.kill(os.getpid(), 9)"), f"{TORCHRUN} --max-restarts 3")

    assert result.failure.message == "rank 1 of 2 ended without a result: killed by SIGKILL"


def test_the_rank_that_hangs_is_told_with_its_line_and_all_stacks_are_in_the_log(probe, tmp_path):
    result = probe(TRAIN.format(fault="while rank == 1: time.sleep(1)"), budget=IMPATIENT)

    assert result.outcome is Outcome.TIMEOUT
    assert result.failure.message == "rank 1 in train.py:20 (<module>) gave no sign of life; rank 0 waits for it"
    assert "rank 0:\n" in result.failure.traceback
    assert "rank 0:\n" not in excerpt(result.failure.traceback)  # the message says what it does
    assert result.failure.traceback in (tmp_path / "probe" / LOG).read_text()


def test_a_launcher_that_starts_nothing_is_told_in_its_own_words(probe):
    result = probe("", start=f"{TORCHRUN} --no-such-option 3")

    assert result.outcome is Outcome.USER_ERROR
    assert result.failure.message.startswith("torchrun ended with exit status 2 and started no rank.")
    assert "unrecognized arguments: --no-such-option" in result.failure.message


def test_one_rank_of_torchrun_is_a_probe_like_any_other(probe):
    result = probe(TRAIN.format(fault=""), start="python -m torch.distributed.run --standalone")

    assert result.outcome is Outcome.OK, result.failure
    assert set(result.measurement.samples) == {8 * result.measurement.steps_per_block}


@pytest.mark.skipif(find_spec("accelerate") is None, reason="needs accelerate")
class TestAccelerate:
    def test_one_process_trains_with_the_precision_of_the_launcher(self, probe):
        start = f"{ACCELERATE} --num_processes 1 --mixed_precision {{amp_dtype:accelerate=no}}"

        result = probe(HEAD + ACCELERATED, start=start, amp_dtype="bfloat16")

        assert result.outcome is Outcome.OK, result.failure
        assert set(result.measurement.samples) == {8 * result.measurement.steps_per_block}

    @pytest.mark.parametrize(("role", "losses"), [("reference", (0.0,) * 5), ("candidate", (1.0,) * 5)])
    def test_losses_are_those_of_the_launchers_own_options(self, launcher, tmp_path, role, losses):
        loss = "model(x).float().mean() * 0 + (accelerator.mixed_precision == 'bf16')"
        (tmp_path / "train.py").write_text(
            (HEAD + ACCELERATED).replace("nn.functional.cross_entropy(model(x), y)", loss)
        )
        (tmp_path / "probe").mkdir()
        start = f"{ACCELERATE} --num_processes 1 --mixed_precision {{amp_dtype:accelerate=no}}"
        reference = Config(values=defaults() | {"batch_size": 8, "amp_dtype": None})
        request = PrecisionCheckRequest(
            target=f"-- {start} train.py {{batch_size=8}}", reference=reference,
            candidate=Config(values=reference.values | {"amp_dtype": "bfloat16"}), device="cpu", steps=5, roles=(role,),
        )  # fmt: skip

        found: PrecisionCheckResult = launcher.run(request, tmp_path / "probe")

        assert found.outcome is Outcome.OK, found.failure
        assert [run.losses for run in found.runs] == [losses]

    def test_a_precision_that_the_script_overrides_is_not_measured(self, probe):
        start = f"{ACCELERATE} --num_processes 1 --mixed_precision {{amp_dtype:accelerate=no}}"
        text = (HEAD + ACCELERATED).replace("Accelerator()", "Accelerator(mixed_precision='no')")

        result = probe(text, start=start, amp_dtype="bfloat16")

        assert result.outcome is Outcome.USER_ERROR
        assert "train.py was given amp bfloat16 and trained with no autocast" in result.failure.message

    def test_fewer_processes_than_the_command_says_are_told(self, probe):
        result = probe(HEAD + ACCELERATED, start=f"{ACCELERATE} --cpu --num_processes 2")

        assert result.outcome is Outcome.USER_ERROR
        assert result.failure.message.startswith("accelerate launch started 1 process, and the command says 2.")
        assert "Write torchrun --nproc-per-node 2 in its place" in result.failure.message
