"""Ranks of our own in real probes: measured together, the right one is blamed for the right cause, none is left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec.structs import replace

from autotune.answer.predicted_accumulation import accumulation_verified
from autotune.core.codes import Code
from autotune.core.records import Config, Value
from autotune.core.requests import InspectRequest, ProbeBudget, ProbeRequest
from autotune.core.results import Isolation, Outcome, ProbeResult, Trial
from autotune.knobs import defaults
from autotune.launch.base import LOG
from autotune.launch.subprocess import SubprocessLauncher
from autotune.precision.records import PrecisionCheckRequest
from autotune.study.summary import ConfigSummary
from tests.faults.conftest import MARK, marked, tag_of
from tests.faults.rank_faults import FAULTS, RankFault, target
from tests.worlds import good, study_request

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is left of a probe is looked up in /proc")
SHORT = ProbeBudget(min_warmup_seconds=0.05, min_seconds=0.1, max_seconds=0.3, max_loader_seconds=0.1)
IMPATIENT = ProbeBudget(first_step_deadline_seconds=60.0, step_deadline_seconds=3.0)
HEALTHY = RankFault(name="none", code="pass", outcome=Outcome.OK, words="", cause="")
MANUAL = """
import torch, lightning
from torch import nn
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.automatic_optimization = nn.Linear(8, 2), False
    def training_step(self, batch, index):
        loss, optimizer = nn.functional.cross_entropy(self.layer(batch[0]), batch[1]), self.optimizers()
        self.manual_backward(loss)
        optimizer.step()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)
    def train_dataloader(self):
        data = torch.utils.data.TensorDataset(torch.randn(256, 8), torch.randint(2, (256,)))
        return torch.utils.data.DataLoader(data, batch_size=8)
"""
Probe = Callable[..., ProbeResult]


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: Isolation) -> Iterator[SubprocessLauncher]:
    """One that leaves nothing but its fork servers, and nothing at all in the end."""
    monkeypatch.chdir(tmp_path)
    with SubprocessLauncher(environ={MARK: str(tmp_path)}, isolation=isolation) as launcher:
        launcher.doubted = frozenset()
        yield launcher
        servers = {one.tag for one in (launcher.fork_servers.running if launcher.fork_servers else ())}
        assert [one for one in marked(tmp_path) if tag_of(one) not in servers] == []
    assert marked(tmp_path) == []


@pytest.fixture
def probe(launcher: SubprocessLauncher, tmp_path: Path) -> Probe:
    def run(fault: RankFault = HEALTHY, budget: ProbeBudget = SHORT, ranks: int = 2, **values: Value) -> ProbeResult:
        (tmp_path / "model.py").write_text(target(fault))
        (tmp_path / "probe").mkdir()
        config = Config(values=defaults() | {"batch_size": 16} | values)
        request = ProbeRequest(target="model.py", config=config, device="cpu", budget=budget, ranks=ranks)
        return launcher.run(request, tmp_path / "probe")

    return run


def test_two_ranks_are_measured_in_lockstep(probe, tmp_path, isolation):
    result = probe(num_workers=1)

    assert result.outcome is Outcome.OK, result.failure
    found = result.measurement
    assert set(found.samples) == {2 * 16 * found.steps_per_block}
    assert [len(one.step_seconds) for one in found.ranks] == [len(found.samples)] * 2
    assert [len(one.busy_seconds) for one in found.ranks] == [len(found.samples)] * 2
    assert found.memory.process_bytes > max(one.memory_bytes for one in found.ranks)
    assert found.compute_only is not None and found.loader_only is not None
    assert (result.isolation, result.isolation_reason) == (isolation, "")
    left = {path.name for path in (tmp_path / "probe").iterdir()} - {"compiled"}  # by torch, in a study beside it
    assert left == {LOG, "request.json", "result.json"}


@pytest.mark.parametrize("fault", FAULTS, ids=[one.name for one in FAULTS])
def test_the_right_rank_and_cause_are_told_and_nothing_is_left(probe, fault):
    result = probe(fault, budget=IMPATIENT)

    assert result.outcome is fault.outcome, result.failure
    assert fault.words in result.failure.message
    assert "rank 1" in result.failure.message
    if fault.outcome is Outcome.TIMEOUT:
        assert "rank 0:\n" in result.failure.traceback and "rank 1:\n" in result.failure.traceback


class TestForkedRanks:
    """What does not depend on how ranks are started is asked of the quicker way."""

    @pytest.fixture
    def isolation(self) -> Isolation:
        return "fork"

    def test_what_two_ranks_are_is_looked_at_by_both(self, launcher, tmp_path):
        (tmp_path / "model.py").write_text(target(HEALTHY))
        (tmp_path / "probe").mkdir()

        found = launcher.run(InspectRequest(target="model.py", device="cpu", ranks=2), tmp_path / "probe")

        assert found.outcome is Outcome.OK, found.failure
        assert (found.facts.ranks, found.facts.dataset_samples) == (2, 512)

    def test_accumulation_is_held_against_micro_steps_of_the_same_process(self, probe):
        result = probe(gradient_accumulation_steps=4)

        assert result.outcome is Outcome.OK, result.failure
        result = replace(result, measurement=replace(result.measurement, interference=None))  # tests run beside others
        accumulated = Config(values=defaults() | {"batch_size": 16, "gradient_accumulation_steps": 4})
        trial = Trial(number=0, purpose="confirm", config=accumulated, result=result)
        summary = ConfigSummary(config=accumulated, trials=(trial,), verdicts=(good(1.0),))
        (found,) = accumulation_verified(summary, (summary,), study_request())
        assert (found.code, found.numbers["micro_batches"]) == (Code.ACCUMULATION_PREDICTED, 4)
        assert found.figure("predicted") > 0 < found.figure("measured")

    def test_paired_runs_of_ranks_stop_at_the_same_step(self, launcher, tmp_path):
        (tmp_path / "model.py").write_text(target(HEALTHY))
        (tmp_path / "probe").mkdir()
        config = Config(values=defaults() | {"batch_size": 16})
        request = PrecisionCheckRequest(
            target="model.py", reference=config, candidate=config, device="cpu", steps=100_000, max_seconds=0.5, ranks=2
        )

        found = launcher.run(request, tmp_path / "probe")

        assert found.outcome is Outcome.OK, found.failure
        assert [run.role for run in found.runs] == ["reference", "perturbed", "candidate"]
        assert found.runs[0].losses[0] == found.runs[2].losses[0]

    def test_an_error_of_all_ranks_is_told_without_a_rank(self, launcher, tmp_path):
        (tmp_path / "model.py").write_text("raise ValueError('both')\n")
        (tmp_path / "probe").mkdir()
        config = Config(values=defaults() | {"batch_size": 16})

        result = launcher.run(ProbeRequest(target="model.py", config=config, device="cpu", ranks=2), tmp_path / "probe")

        assert result.failure.message == "model.py:1 in <module>: ValueError: both"


class TestExecutedRanks:
    """What cannot be forked: Lightning sets variables when it is imported."""

    @pytest.fixture
    def isolation(self) -> Isolation:
        return "fresh"

    @pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning")
    def test_a_loop_of_its_own_starts_its_ranks_itself(self, launcher, tmp_path):
        (tmp_path / "model.py").write_text(MANUAL)
        (tmp_path / "probe").mkdir()

        found = launcher.run(InspectRequest(target="model.py", device="cpu", ranks=2), tmp_path / "probe")

        assert found.outcome is Outcome.USER_ERROR
        assert "model.py trains in a loop of its own, and a framework's loop starts its ranks" in found.failure.message
