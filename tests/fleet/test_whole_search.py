"""A whole search on real workers of a simulated machine: killed and restarted, it comes to as good an answer."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from autotune.core.records import Config
from autotune.core.requests import ProbeRequest
from autotune.fleet.records import QueuedStudy
from autotune.fleet.search_queue import Stopped
from autotune.preparation.settings import Settings
from autotune.study.view import load_view
from autotune.targets.source import digest_of
from autotune.testing import FakeLauncher
from autotune.testing.launcher_contract import example
from autotune.tuning.engine import search
from tests.fleet.fleet import SOON_SECONDS, until
from tests.worlds import Listener

WORKERS = ("one", "two", "three")


@pytest.fixture
def asked(fleet, tmp_path, monkeypatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    fleet.cwd = tmp_path
    Path("model.py").write_text("def model(): ...\n")
    return Settings(target="model.py", study=fleet.folder / "study", probes=16, time_budget_seconds=1e6)


def queued() -> QueuedStudy:
    return QueuedStudy(name="study", target="model.py", target_digest=digest_of("model.py"))


def run(fleet, asked):
    launcher = fleet.launcher(expected=len(WORKERS), study=queued())
    return search(asked, launcher, Listener(), pause=lambda seconds: None, foreign_cores=lambda seconds: 0.0)


def test_a_search_whose_workers_and_server_die_answers_as_well_as_one_in_peace(fleet, asked):
    for name in WORKERS:
        fleet.worker(name, simulated="0.2")

    def disturb() -> None:
        for name in WORKERS[:2]:
            begun = len(fleet.began(name))
            until(lambda name=name, begun=begun: len(fleet.began(name)) > begun + 1)
            fleet.kill_and_restart(name)
        fleet.server.restart()

    trouble = Thread(target=disturb)
    trouble.start()
    answer = run(fleet, asked)
    trouble.join()

    machine, view = FakeLauncher(), load_view(asked.folder)
    searching = [trial.config for trial in view.trials if trial.purpose == "search"]
    assert len(searching) == len(set(searching))
    assert {trial.result.worker for trial in view.trials} == set(WORKERS)
    peace = search(
        Settings(target="model.py", study=fleet.folder / "peace", probes=16, time_budget_seconds=1e6),
        machine, Listener(), machine.clock, foreign_cores=lambda seconds: 0.0,
    )  # fmt: skip
    found, best = (machine.throughput(Config(values=one.params)) for one in (answer, peace))
    assert found >= 0.95 * best


def test_only_the_servers_clock_counts(fleet, asked):
    """A simulated machine has a clock of its own, which is months behind."""
    fleet.worker("one", simulated="0.2")

    result = fleet.launcher(study=queued()).run(example(ProbeRequest, asked.target), fleet.place(0))

    began, now = datetime.fromisoformat(result.started_at), datetime.now(UTC)
    assert abs(now - began) < timedelta(hours=1)


@pytest.mark.parametrize("changed", ["search", "worker"])
def test_a_worker_leaves_a_search_whose_target_is_another_one_by_now(fleet, asked, changed):
    """The search was killed and begins anew with another file; or the worker's own file is changed in between."""
    fleet.worker("one", simulated="0.2")
    launcher = fleet.launcher(study=queued())
    launcher.run(example(ProbeRequest, asked.target), fleet.place(0))
    worker = fleet.workers["one"]

    if changed == "worker":
        Path("model.py").write_text("def model(): return 1\n")
    else:
        launcher.queue.database.close()  # as a kill does
        fleet.launchers.remove(launcher)
        launcher = fleet.launcher(study=replace(queued(), target_digest="of another file"))

    def ask() -> None:
        with suppress(Stopped):
            launcher.run(example(ProbeRequest, asked.target), fleet.place(1))

    (waits := Thread(target=ask)).start()
    status = worker.wait(SOON_SECONDS)
    launcher.stop()
    waits.join()

    assert status != 0
    assert (
        "model.py is another file here than model.py where the study study is searched" in fleet.log("one").read_text()
    )
    assert fleet.began("one") == ["probes/0000"]
