"""A launcher whose probes go wrong on demand, and the check that nothing of them is left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import ProbeResult
from autotune.launch.subprocess import SubprocessLauncher

MARK = "_AUTOTUNE_TEST_FOLDER"
Survivors = Callable[[], list[psutil.Process]]


@pytest.fixture
def survivors(tmp_path: Path) -> Iterator[Survivors]:
    """The living processes that this test's probes started, found by another mark than the launcher's own tag."""

    def find() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == str(tmp_path):
                    found.append(process)
        return found

    yield find
    for process in find():
        process.kill()


@pytest.fixture
def child_command() -> tuple[str, ...]:
    return sys.executable, str(Path(__file__).with_name("faulty_child.py"))


@pytest.fixture
def launcher(tmp_path: Path, child_command: tuple[str, ...]) -> SubprocessLauncher:
    return SubprocessLauncher(command=child_command, environ={MARK: str(tmp_path)})


@pytest.fixture
def request_for() -> Callable[..., ProbeRequest]:
    """`request_for(fault, **budget)`: the request that makes the child go wrong so."""

    def make(fault: str, **budget: float) -> ProbeRequest:
        config = Config(values={"batch_size": 8, "gradient_accumulation_steps": 1})
        return ProbeRequest(target=fault, config=config, device="cpu", budget=ProbeBudget(**budget))  # type: ignore[arg-type]

    return make


@pytest.fixture
def suffer(
    launcher: SubprocessLauncher, tmp_path: Path, request_for: Callable[..., ProbeRequest]
) -> Callable[..., ProbeResult]:
    """`suffer(fault, **budget)`: one probe with that fault, in `tmp_path`."""
    return lambda fault, **budget: launcher.run(request_for(fault, **budget), tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB: room for a few records, which grow with the steps that a machine takes in a window."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs Linux and root")
    yield place
    subprocess.run(["umount", str(place)], check=True)
