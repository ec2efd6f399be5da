"""What every launcher keeps, whatever it runs probes on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from autotune import codec
from autotune.errors import EnvironmentUnfit
from autotune.forecast import DryRun
from autotune.gradients import NoiseScaleResult
from autotune.launch.base import LOG, REQUEST, RESULT, Launcher
from autotune.launch.fake import FakeLauncher
from autotune.launch.subprocess import SubprocessLauncher
from autotune.records import Config
from autotune.requests import (
    DryRunRequest,
    InspectRequest,
    NoiseScaleRequest,
    ProbeRequest,
    StabilityRequest,
)
from autotune.results import Inspection, Outcome, ProbeResult, StabilityResult

CHILD = (sys.executable, str(Path(__file__).parents[1] / "faults" / "faulty_child.py"))


def fate(
    request: ProbeRequest | StabilityRequest | NoiseScaleRequest | DryRunRequest,
) -> Outcome | None:
    return Outcome.CRASHED if request.target == "kill" else None


LAUNCHERS: dict[str, Callable[[], Launcher]] = {
    "subprocess": lambda: SubprocessLauncher(command=CHILD),
    "fake": lambda: FakeLauncher(faults=fate, comparison_faults=fate, gradient_faults=fate, dry_run_faults=fate),
}


@pytest.fixture(params=LAUNCHERS)
def launcher(request: pytest.FixtureRequest) -> Launcher:
    return LAUNCHERS[request.param]()


def request_for(target: str, number: int = 0) -> ProbeRequest:
    values = {"batch_size": 8, "gradient_accumulation_steps": 2, "num_workers": 1, "amp_dtype": None}
    return ProbeRequest(target=target, config=Config(values=values), device="cpu", number=number)


@pytest.mark.parametrize(("target", "outcome"), [("ok", Outcome.OK), ("kill", Outcome.CRASHED)])
def test_a_probe_leaves_its_request_its_log_and_the_result_that_was_returned(
    launcher: Launcher, tmp_path: Path, target: str, outcome: Outcome
) -> None:
    request = request_for(target)

    result = launcher.probe(request, tmp_path)

    assert result.outcome is outcome
    assert result == codec.read(tmp_path / RESULT, ProbeResult)
    assert request == codec.read(tmp_path / REQUEST, ProbeRequest)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([LOG, REQUEST, RESULT])


@pytest.mark.parametrize("target", ["ok", "kill"])
def test_a_result_knows_when_it_began_and_how_long_it_took(launcher: Launcher, tmp_path: Path, target: str) -> None:
    result = launcher.probe(request_for(target), tmp_path)

    assert datetime.fromisoformat(result.started_at).utcoffset() is not None
    assert result.elapsed_seconds > 0
    assert {"start", "load"} <= set(result.phase_seconds)


def test_a_failed_probe_says_where_and_how_we_know(launcher: Launcher, tmp_path: Path) -> None:
    result = launcher.probe(request_for("kill"), tmp_path)

    assert result.failure is not None
    assert result.failure.phase
    assert result.failure.message
    assert result.failure.evidence


def test_an_old_result_in_the_folder_is_never_taken_for_the_new(launcher: Launcher, tmp_path: Path) -> None:
    launcher.probe(request_for("ok"), tmp_path)

    result = launcher.probe(request_for("kill"), tmp_path)

    assert result.outcome is Outcome.CRASHED


def test_an_inspection_leaves_the_same_files(launcher: Launcher, tmp_path: Path) -> None:
    inspection = launcher.inspect(InspectRequest(target="ok"), tmp_path)

    assert inspection.environment is not None
    assert inspection.facts is not None
    assert inspection == codec.read(tmp_path / RESULT, Inspection)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([LOG, REQUEST, RESULT])


@pytest.mark.parametrize(("target", "outcome"), [("ok", Outcome.OK), ("kill", Outcome.CRASHED)])
def test_a_comparison_leaves_the_same_files_and_always_comes_back(
    launcher: Launcher, tmp_path: Path, target: str, outcome: Outcome
) -> None:
    config = request_for(target).config
    request = StabilityRequest(target=target, reference=config, candidate=config, device="cpu")

    result = launcher.compare(request, tmp_path)

    assert result.outcome is outcome
    assert bool(result.runs) == (result.failure is None) == (outcome is Outcome.OK)
    assert datetime.fromisoformat(result.started_at).utcoffset() is not None
    assert result.elapsed_seconds > 0
    assert result == codec.read(tmp_path / RESULT, StabilityResult)
    assert request == codec.read(tmp_path / REQUEST, StabilityRequest)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([LOG, REQUEST, RESULT])


@pytest.mark.parametrize(("target", "outcome"), [("ok", Outcome.OK), ("kill", Outcome.CRASHED)])
def test_a_sample_of_gradients_leaves_the_same_files_and_always_comes_back(
    launcher: Launcher, tmp_path: Path, target: str, outcome: Outcome
) -> None:
    request = NoiseScaleRequest(target=target, config=request_for(target).config, device="cpu")

    result = launcher.sample_gradients(request, tmp_path)

    assert result.outcome is outcome
    assert (result.sample is not None) == (result.failure is None) == (outcome is Outcome.OK)
    assert datetime.fromisoformat(result.started_at).utcoffset() is not None
    assert result.elapsed_seconds > 0
    assert result == codec.read(tmp_path / RESULT, NoiseScaleResult)
    assert request == codec.read(tmp_path / REQUEST, NoiseScaleRequest)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([LOG, REQUEST, RESULT])


@pytest.mark.parametrize(("target", "outcome"), [("ok", Outcome.OK), ("kill", Outcome.CRASHED)])
def test_a_dry_run_leaves_the_same_files_and_always_comes_back(
    launcher: Launcher, tmp_path: Path, target: str, outcome: Outcome
) -> None:
    config = request_for(target).config
    request = DryRunRequest(target=target, config=config, arms=({"amp_dtype": None},), batches=(8, 16), device="cpu")

    result = launcher.dry_run(request, tmp_path)

    assert result.outcome is outcome
    assert bool(result.arms) == (result.failure is None) == (outcome is Outcome.OK)
    assert datetime.fromisoformat(result.started_at).utcoffset() is not None
    assert result.elapsed_seconds > 0
    assert result == codec.read(tmp_path / RESULT, DryRun)
    assert request == codec.read(tmp_path / REQUEST, DryRunRequest)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([LOG, REQUEST, RESULT])


@pytest.mark.parametrize("name", [REQUEST, RESULT])
def test_a_folder_that_cannot_be_written_is_an_unfit_environment(launcher: Launcher, tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.partial").mkdir()  # stands in the way of an atomic write, also for root

    with pytest.raises(EnvironmentUnfit, match=r"cannot be written: .* free there\)\. .*\. Free some space"):
        launcher.probe(request_for("ok"), tmp_path)


def test_probes_run_side_by_side_without_mixing_their_folders(launcher: Launcher, tmp_path: Path) -> None:
    targets = ["ok", "kill", "ok", "kill"]
    folders = [tmp_path / str(number) for number in range(len(targets))]
    for folder in folders:
        folder.mkdir()

    with ThreadPoolExecutor(len(targets)) as pool:
        results = list(pool.map(launcher.probe, map(request_for, targets), folders))

    assert [result.outcome is Outcome.OK for result in results] == [True, False, True, False]
    assert results == [codec.read(folder / RESULT, ProbeResult) for folder in folders]


def test_a_dead_inspection_is_an_inspection_with_a_failure(tmp_path: Path) -> None:
    launcher = SubprocessLauncher(command=CHILD)

    inspection = launcher.inspect(InspectRequest(target="segfault"), tmp_path)

    assert inspection.outcome is Outcome.CRASHED
    assert inspection.failure is not None
    assert inspection == codec.read(tmp_path / RESULT, Inspection)
