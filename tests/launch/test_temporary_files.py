"""What a probe leaves in the system's folder for temporary files: nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Isolation, Outcome, ProbeResult
from autotune.knobs import defaults
from autotune.launch.subprocess import SubprocessLauncher

pytestmark = pytest.mark.slow  # real probes
SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
rows = TensorDataset(torch.zeros(2560, 4), torch.zeros(2560, dtype=torch.long))
for _ in range(100):
    for x, y in DataLoader(rows, 16, num_workers=2):
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
"""
BRIEF = ProbeBudget(min_warmup_seconds=0.0, max_compute_seconds=0.05, max_loader_seconds=0.05, max_seconds=0.2)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder with a short name: the path of a socket has at most 107 bytes, or else loaders wait for ever."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def run(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Isolation], ProbeResult]:
    """Returns the result of a probe of a script, whose files for the time being go into `temporary`."""
    (folder := tmp_path / "probe").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(temporary))
    config = Config(values=defaults() | {"batch_size": 16, "num_workers": 2})
    asked = ProbeRequest(target="-- python train.py", config=config, device="cpu", budget=BRIEF)

    def run_it(script: str, isolation: Isolation) -> ProbeResult:
        (tmp_path / "train.py").write_text(script)
        with SubprocessLauncher(isolation=isolation) as launcher:
            return launcher.run(asked, folder)

    return run_it


def _left(temporary: Path) -> list[str]:
    return [one.name for one in temporary.iterdir() if one.name.startswith("pymp-")]


@pytest.mark.parametrize("isolation", ["fresh", "fork"])
def test_loader_workers_leave_no_sockets_behind(
    run: Callable[[str, Isolation], ProbeResult], temporary: Path, isolation: Isolation
) -> None:
    result = run(SCRIPT, isolation)

    assert result.outcome is Outcome.OK, result.failure
    assert _left(temporary) == []


@pytest.mark.parametrize("isolation", ["fresh", "fork"])
def test_a_killed_probe_leaves_no_sockets_behind(
    run: Callable[[str, Isolation], ProbeResult], temporary: Path, isolation: Isolation
) -> None:
    result = run(SCRIPT.replace("optimizer.step()", "__import__('os').kill(__import__('os').getpid(), 9)"), isolation)
    until, left = time.monotonic() + 20, [""]
    while left and time.monotonic() < until:  # its guard goes on for a moment
        time.sleep(0.05)
        left = _left(temporary)

    assert "killed" in str(result.failure), result.failure
    assert left == []
