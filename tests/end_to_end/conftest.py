"""One recorded study for all, copies of it to spoil, and the check that nothing keeps running."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import commandline

SEARCH = ("search", "model.py", "-t", "5m")  # more than it takes on any machine: see `tests/commandline.py`


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A search that ran to its end, with what lay in its folder before and after."""

    home: Path
    ended: subprocess.CompletedProcess[str]
    before: set[str]
    after: set[str]

    @property
    def study(self) -> Path:
        return self.home / "studies" / "model"

    @property
    def best(self) -> Any:
        return json.loads((self.study / "best.json").read_text())


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """One for all workers of pytest: the first that needs it searches, the others wait for that."""
    base = tmp_path_factory.getbasetemp()
    place = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    kept = place / "recorded.pickle"
    with (place / "recorded.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_bytes(pickle.dumps(_searched(place / "recorded")))
    return pickle.loads(kept.read_bytes())


def _searched(home: Path) -> Recorded:
    home.mkdir()
    (home / "model.py").write_text(commandline.TARGET)
    before = commandline.listing(home)
    ended = commandline.run(home, *SEARCH, "-n", "1", "--json", "-o", "copy.json", program=commandline.SHORTEST)
    assert ended.returncode == 0, ended.stderr
    return Recorded(home=home, ended=ended, before=before, after=commandline.listing(home))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder with a target in it, and nothing running in it afterwards."""
    place = tmp_path / "home"
    place.mkdir()
    (place / "model.py").write_text(commandline.TARGET)
    yield place
    for process in commandline.processes(place):
        process.kill()


@pytest.fixture
def copy(recorded: Recorded, home: Path) -> Path:
    """The same with the recorded study in it, free to be changed."""
    shutil.copytree(recorded.home / "studies", home / "studies")
    return home
