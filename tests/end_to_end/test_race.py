"""Races with real processes: files, commands, the code of another revision, and Ctrl-C."""

import signal
import sys
from contextlib import chdir, suppress
from pathlib import Path

import psutil
import pytest

from autotune.races import race_run
from autotune.races.race import named_contestants, race
from autotune.races.settings import RaceSettings
from tests.commandline import PROBE_BUDGET, briefly, probes, processes, start, wait_until
from tests.races.test_worktree import git

MODEL = """\
import time
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import TensorDataset

assert Path("data.txt").read_text() == "of now"
def model():
    while Path("hold").exists() and "probes" in " ".join(__import__("sys").orig_argv): time.sleep(0.01)
    return nn.Linear(8, 2)
def dataset(): return TensorDataset(torch.randn(512, 8), torch.randint(2, (512,)))
def loss(model, batch):
    time.sleep({pause})
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
baseline = {{"batch_size": 8, "num_workers": 0}}
"""
COMMAND = """\
import sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(512, 8), torch.randint(2, (512,)))
for epoch in range(100):
    for x, y in DataLoader(data, batch_size=8):
        time.sleep(0.05 if "--slow" in sys.argv else 0.002)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
SLOW, FAST = 0.05, 0.002  # seconds that a step sleeps; beside other tests its few products take as long


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "data.txt").write_text("of now")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(race_run.RaceRun, "is_beside_others", lambda _, place: False)  # others test here at once
    monkeypatch.setattr(race_run, "BRIEF", PROBE_BUDGET)  # a step sleeps 25 times as long as the other: a glance tells
    with briefly():
        yield tmp_path


class At:
    """A launcher whose processes work in the folder of a worktree."""

    def __init__(self, launcher, checkout):
        self.launcher, self.folder = launcher, checkout.folder if checkout else Path.cwd()

    def run(self, request, folder):
        folder = folder.absolute()
        with chdir(self.folder):
            return self.launcher.run(request, folder)


def raced(launcher, *names, revision=None):
    # Three rounds decide it; on a busy machine those that others spoiled are left out, and it needs more.
    settings = RaceSettings(rounds=20, time_budget_seconds=600, device="cpu", baseline_commit=revision)
    named = named_contestants(names, [], revision)
    return race(named, settings, lambda checkout: At(launcher, checkout), print, pause=lambda _: None)


def test_the_slower_of_two_files_is_found(home, forking_launcher):
    (home / "fast.py").write_text(MODEL.format(pause=FAST))
    (home / "slow.py").write_text(MODEL.format(pause=SLOW))

    result = raced(forking_launcher, "fast.py", "slow.py")

    assert result.verdict == "slower"
    assert result.standings[1].ratio < 1
    assert {path.name for path in home.iterdir()} == {"data.txt", "fast.py", "slow.py", "studies"}
    kept = Path(result.folder) / "probes" / "0000"
    assert {path.name for path in kept.iterdir()} == {"request.json", "result.json", "log.txt"}


def test_the_faster_of_two_commands_is_found(home, forking_launcher):
    (home / "train.py").write_text(COMMAND)
    python = f"{sys.executable} train.py"

    result = raced(forking_launcher, f"{python} --slow", [sys.executable, "train.py"])

    assert result.verdict == "faster"
    assert result.standings[1].ratio > 1


def repository(home, then, now):
    (home / "model.py").write_text(MODEL.format(pause=then))
    (home / ".gitignore").write_text("data.txt\nhold\n")
    git(home, "init", "-q")
    git(home, "add", "model.py", ".gitignore")
    git(home, "commit", "-q", "-m", "then")
    (home / "model.py").write_text(MODEL.format(pause=now))


def test_the_code_of_now_races_that_of_then(home, forking_launcher):
    repository(home, then=SLOW, now=FAST)

    result = raced(forking_launcher, "model.py", revision="HEAD")

    assert result.verdict == "faster"
    assert result.standings[1].ratio > 1
    assert [one.commit for one in result.standings] == [*git(home, "rev-parse", "HEAD"), ""]
    assert [one.label for one in result.standings] == ["model.py at HEAD", "model.py"]
    assert len(git(home, "worktree", "list")) == 1
    assert not (Path(result.folder) / "worktree").exists()


def test_ctrl_c_leaves_no_worktree_and_no_process(home):
    repository(home, then=FAST, now=FAST)
    (home / "hold").touch()
    began = start(home, "race", "model.py", "--baseline-commit", "HEAD", "--device", "cpu")
    (place,) = (home / "studies" / "race-model" / "worktree",)

    def is_in_the_worktree():
        with suppress(psutil.Error):
            return any(process.cwd() == str(place) for process in probes(home)) and any(
                (home / "studies" / "race-model" / "probes").glob("*/log.txt")
            )

    wait_until(is_in_the_worktree, "no probe began in the worktree")
    began.send_signal(signal.SIGINT)
    output, _ = began.communicate()

    assert began.returncode == 130, output
    assert processes(home) == []
    assert not place.exists()
    assert len(git(home, "worktree", "list")) == 1
    assert "Traceback" not in output
