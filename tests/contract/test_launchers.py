"""Every launcher of ours keeps the contract for launchers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.core import codec
from autotune.core.measurements import MEASUREMENTS
from autotune.core.requests import InspectRequest, Request
from autotune.core.results import Inspection, Outcome
from autotune.gradient_noise.records import NoiseScaleRequest
from autotune.launch.base import RESULT, Launcher
from autotune.launch.subprocess import SubprocessLauncher
from autotune.testing import FakeLauncher
from autotune.testing.launcher_contract import LauncherContract, example

CHILD = (sys.executable, str(Path(__file__).parents[1] / "faults" / "faulty_child.py"))


def fate(request: Request) -> Outcome | None:
    return Outcome.CRASHED if request.target == "kill" else None


@pytest.mark.slow  # starts processes for every kind of measurement
class TestSubprocessLauncher(LauncherContract):
    def launcher(self) -> Launcher:
        return SubprocessLauncher(command=CHILD)


@pytest.mark.slow  # the same
class TestForkingLauncher(LauncherContract):
    @pytest.fixture(autouse=True)
    def _one_for_all(self) -> Iterator[None]:
        with SubprocessLauncher(command=CHILD, isolation="fork") as self.forking:
            self.forking.doubted = frozenset()  # to see forked processes die, too
            yield
        assert self.forking.fork_servers.running == ()

    def launcher(self) -> Launcher:
        return self.forking

    def test_every_process_is_forked(self, tmp_path: Path) -> None:
        for kind in MEASUREMENTS:
            assert self._run(example(kind, self.TRAINS), tmp_path).isolation == "fork"


class TestFakeLauncher(LauncherContract):
    def launcher(self) -> Launcher:
        return FakeLauncher(faults=dict.fromkeys(MEASUREMENTS, fate))


class Forgetful(SubprocessLauncher):
    """Leaves no answer behind."""

    def run(self, request, folder):
        answer = super().run(request, folder)
        (folder / RESULT).unlink()
        return answer


class Confused(FakeLauncher):
    """Takes every target for one that trains."""


@pytest.mark.parametrize("launcher", [Forgetful(command=CHILD), Confused()], ids=["forgetful", "confused"])
def test_a_launcher_that_does_not_keep_the_contract_fails_it(launcher: Launcher, tmp_path: Path) -> None:
    contract = LauncherContract()
    contract.launcher = lambda: launcher

    with pytest.raises((AssertionError, FileNotFoundError)):
        contract.test_every_kind_leaves_request_log_and_the_answer_that_was_returned(tmp_path)


def test_a_dead_inspection_is_an_inspection_with_a_failure(tmp_path: Path) -> None:
    inspection = SubprocessLauncher(command=CHILD).run(InspectRequest(target="segfault"), tmp_path)

    assert inspection.outcome is Outcome.CRASHED
    assert inspection.failure is not None
    assert inspection == codec.read(tmp_path / RESULT, Inspection)


def test_the_simulated_machine_runs_out_of_memory_whatever_is_measured(tmp_path: Path) -> None:
    request = example(NoiseScaleRequest, "ok", memory_limit_bytes=1)

    assert FakeLauncher().run(request, tmp_path).outcome is Outcome.OOM_DEVICE
