"""A launcher whose probes go wrong on demand, and the check that nothing of them is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from autotune.core.probe_tag import TAG
from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Isolation, ProbeResult
from autotune.launch.subprocess import SubprocessLauncher

MARK = "_AUTOTUNE_TEST_FOLDER"
Survivors = Callable[[], list[psutil.Process]]


@pytest.fixture
def survivors(tmp_path: Path, launcher: SubprocessLauncher) -> Iterator[Survivors]:
    """The living processes that this test's probes started, found by another mark than the launcher's own tag."""

    def find() -> list[psutil.Process]:
        """All but the fork servers of the living launcher."""
        own = {fork_server.tag for fork_server in (launcher.fork_servers.running if launcher.fork_servers else ())}
        return [process for process in marked(tmp_path) if tag_of(process) not in own]

    yield find
    for process in find():
        process.kill()


@pytest.fixture
def child_command() -> tuple[str, ...]:
    return sys.executable, str(Path(__file__).with_name("faulty_child.py"))


@pytest.fixture(params=["fresh", "fork"])
def isolation(request: pytest.FixtureRequest) -> Isolation:
    return request.param


@pytest.fixture
def launcher(tmp_path: Path, child_command: tuple[str, ...], isolation: Isolation) -> Iterator[SubprocessLauncher]:
    """One that believes what becomes of a forked probe; with its end its fork servers are gone."""
    with SubprocessLauncher(command=child_command, environ={MARK: str(tmp_path)}, isolation=isolation) as launcher:
        launcher.doubted = frozenset()
        yield launcher
    fork_servers = {process.pid for process in marked(tmp_path) if process.ppid() == os.getpid()}
    assert fork_servers == set()


def marked(folder: Path) -> list[psutil.Process]:
    """The living processes that descend from a launcher of the test with this folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == str(folder):
                found.append(process)
    return found


def tag_of(process: psutil.Process) -> str | None:
    """Of the probe or fork server that it belongs to."""
    with suppress(psutil.Error):
        return process.environ().get(TAG)
    return None


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
