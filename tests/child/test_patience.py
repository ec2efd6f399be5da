"""How long a silent probe is waited for: real probes of targets whose steps are slow."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.records import Value
from autotune.core.requests import ProbeBudget, ProbeRequest, patient
from autotune.core.results import Outcome, ProbeResult
from autotune.launch.base import REQUEST
from autotune.launch.subprocess import SubprocessLauncher
from tests.session_launcher import SessionLauncher
from tests.targets_support import HEAD
from tests.worlds import config

pytestmark = pytest.mark.slow  # real probes that are waited for

QUICK = ProbeBudget(
    min_steps=2,
    min_seconds=0.0,
    max_seconds=0.1,
    min_warmup_seconds=0.0,
    min_warmup_steps=2,
    step_deadline_seconds=2.0,
)
SLOW = (
    HEAD
    + """
import time

def model(): return torch.nn.Linear(4, 2)
def batch(batch_size): return torch.ones(batch_size, 4)
first = {first}
def loss(model, batch):
    global first
    time.sleep(first)
    first = {later}
    return model(batch).sum()
"""
)


def _probed(
    folder: Path, first: float, later: float, launcher: SubprocessLauncher, budget: ProbeBudget = QUICK, **values: Value
) -> ProbeResult:
    (folder / "model.py").write_text(SLOW.format(first=first, later=later))
    (folder / "probe").mkdir()
    request = ProbeRequest(target=str(folder / "model.py"), config=config(**values), device="cpu", budget=budget)
    return launcher.run(request, folder / "probe")


def test_an_optimizer_step_may_take_longer_than_the_deadline_of_a_micro_batch(
    tmp_path: Path, forking_launcher: SubprocessLauncher
) -> None:
    budget = replace(QUICK, step_deadline_seconds=1.5)

    result = _probed(tmp_path, 0.3, 0.3, forking_launcher, budget, batch_size=2, gradient_accumulation_steps=6)

    assert result.outcome is Outcome.OK, result.failure


def test_the_first_step_is_waited_for_longer_than_the_others(
    tmp_path: Path, forking_launcher: SubprocessLauncher
) -> None:
    result = _probed(tmp_path, 3.0, 0.0, forking_launcher, batch_size=2)

    assert result.outcome is Outcome.OK, result.failure


def test_a_later_micro_batch_that_is_silent_for_too_long_is_a_hang(
    tmp_path: Path, forking_launcher: SubprocessLauncher
) -> None:
    result = _probed(tmp_path, 0.0, 60.0, forking_launcher, batch_size=2)

    assert result.outcome is Outcome.TIMEOUT
    assert result.failure is not None
    assert result.failure.message.endswith("no sign of life for 2 s")


def test_the_user_s_step_timeout_is_that_of_every_step_and_is_in_the_request(
    tmp_path: Path, forking_launcher: SessionLauncher
) -> None:
    launcher = forking_launcher.lent(step_timeout_seconds=1.0)

    result = _probed(tmp_path, 60.0, 60.0, launcher, ProbeBudget(), batch_size=2)

    assert result.outcome is Outcome.TIMEOUT
    assert codec.read(tmp_path / "probe" / REQUEST, ProbeRequest).budget == patient(ProbeBudget(), 1.0)


@pytest.mark.parametrize(("seconds", "total"), [(60.0, 1800.0), (3600.0, 8 * 3600.0)])
def test_a_patient_budget_has_time_for_the_steps_that_a_probe_takes(seconds: float, total: float) -> None:
    budget = patient(ProbeBudget(), seconds)

    assert (budget.first_step_deadline_seconds, budget.step_deadline_seconds) == (seconds, seconds)
    assert budget.total_deadline_seconds == total
