"""`autotune search --storage` and `autotune worker` as they are typed: processes, a server, and a real training."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fleet.fleet import until

TARGET = """\
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model(): return nn.Linear(8, 2)
def dataset(): return TensorDataset(torch.randn(512, 8), torch.randint(2, (512,)))
baseline = {"batch_size": 64}
space = {"batch_size": [64, 128], "amp_dtype": [None], "num_workers": [0]}
"""
SEARCH = ("search", "model.py", "-t", "60s", "-n", "1", "--stability", "off", "--compile", "none", "--no-progress")
SECRET = "a-secret"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "model.py").write_text(TARGET)
    return tmp_path


def start(project, url, name, *words):
    """A command of ours with its output in a file."""
    environ = {**os.environ, "AUTOTUNE_STORAGE": url, "TMPDIR": str(project)}
    with (project / name).open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "autotune", *words], cwd=project, env=environ, stdin=subprocess.DEVNULL,
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip


def test_a_search_on_a_worker_is_killed_goes_on_and_ends_and_nobody_reads_the_password(fleet, project):
    worker = start(project, fleet.url, "worker.txt", "worker", "--study", "model", "--name", "node1")
    searching = start(project, fleet.url, "killed.txt", *SEARCH)
    study = project / "studies" / "model"
    until(lambda: (study / "probes" / "0000" / "request.json").exists(), 120)

    searching.send_signal(signal.SIGKILL)
    searching.wait()
    resumed = start(project, fleet.url, "resumed.txt", *SEARCH)
    ended = resumed.wait(240), worker.wait(60)

    said = {name: (project / name).read_text() for name in ("worker.txt", "killed.txt", "resumed.txt")}
    assert ended == (0, 0), said
    assert "node1 has joined model" in said["worker.txt"]
    assert said["worker.txt"].count("probes/0000") <= 1
    results = sorted(study.glob("probes/*/result.json"))
    assert {json.loads(one.read_text())["worker"] for one in results} == {"node1"}
    files = [path for path in project.rglob("*") if path.is_file() and path.name != "model.py"]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_a_search_in_python_measures_on_a_worker(fleet, project):
    (project / "search.py").write_text(
        "import os, autotune\n"
        "if __name__ == '__main__':\n"
        "    found = autotune.search(\n"
        "        'model.py', storage=os.environ['AUTOTUNE_STORAGE'], time_budget='60s', probes=1, stability='off'\n"
        "    )\n"
        "    print(found.study)\n"
    )
    worker = start(project, fleet.url, "worker.txt", "worker", "--study", "model", "--name", "node1")
    environ = {**os.environ, "AUTOTUNE_STORAGE": fleet.url, "TMPDIR": str(project)}

    ended = subprocess.run([sys.executable, "search.py"], cwd=project, env=environ, capture_output=True, text=True)

    assert ended.stdout == f"{Path('studies', 'model')}\n", ended.stderr
    assert worker.wait(60) == 0
    results = sorted(project.glob("studies/model/probes/*/result.json"))
    assert {json.loads(one.read_text())["worker"] for one in results} == {"node1"}


def test_each_worker_trains_with_the_ranks_of_the_search(fleet, project, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")  # a rank then has its share of the cores, and a worker all of them
    worker = start(project, fleet.url, "worker.txt", "worker", "--study", "model", "--name", "node1")
    searching = start(project, fleet.url, "search.txt", *SEARCH, "--ranks", "2")

    ended = searching.wait(240), worker.wait(60)

    said = {name: (project / name).read_text() for name in ("worker.txt", "search.txt")}
    assert ended == (0, 0), said
    assert "2 ranks (gloo)" in said["search.txt"]
    assert "ok" in said["worker.txt"].partition("probes/0000: ")[2], said


def test_a_dry_run_says_who_would_measure_and_asks_nobody(fleet, project):
    address = fleet.url.replace(str(fleet.server.port), "1")  # where nobody listens

    dry = start(project, address, "dry.txt", "search", "model.py", "--dry-run")

    assert dry.wait(60) == 0
    assert "127.0.0.1:1/" in (told := (project / "dry.txt").read_text()), told
    assert "would measure, and not this machine." in told


def test_a_worker_with_another_version_of_the_file_says_so(fleet, project, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "model.py").write_text(f"{TARGET}# changed\n")
    searching = start(project, fleet.url, "search.txt", *SEARCH)
    worker = start(other, fleet.url, "worker.txt", "worker", "--study", "studies/model")

    status = worker.wait(120)
    searching.send_signal(signal.SIGINT)
    searching.wait(60)

    assert status == 2
    assert "their digests differ" in (other / "worker.txt").read_text()
    assert not Path(project / "studies" / "model" / "study.json").exists()
