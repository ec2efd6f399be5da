"""What happens to a fleet while probes run: nothing is lost, and nothing runs twice at once."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome, ProbeResult
from autotune.errors import EnvironmentUnfit
from autotune.fleet.database import FIRST_PATIENCE_SECONDS, Database
from autotune.fleet.search_queue import Stopped
from autotune.fleet.state import read_workers
from autotune.launch.base import REQUEST, RESULT
from autotune.study import disk
from autotune.testing.launcher_contract import example
from benchmarks.fleet_soak import soak
from tests.fleet.fleet import QUICK, until
from tests.fleet.proxy import Wire

LONG = example(ProbeRequest, "long")
NOT_RUNNING = "The search of study is not running: waiting for it to go on."


def probes_of(pid: int) -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["cmdline"]) if f"--parent {pid}" in " ".join(one.info["cmdline"] or ())]


def running(fleet, launcher, number: int = 0, request=LONG):
    """The future of one long probe that has begun, and its folder."""
    place, pool = fleet.place(number), ThreadPoolExecutor(1)
    fleet.asking.append(pool)
    future = pool.submit(launcher.run, request, place)
    until(lambda: any(fleet.began(name) for name in fleet.workers))
    return future, place


def test_a_worker_that_is_killed_is_replaced_and_its_probe_ends_with_it(fleet) -> None:
    fleet.worker("one")
    launcher = fleet.launcher()
    future, place = running(fleet, launcher)
    until(lambda: probes_of(fleet.workers["one"].pid))
    orphans = probes_of(fleet.workers["one"].pid)

    fleet.kill("one")
    fleet.worker("two")
    result = future.result()

    assert result.outcome is Outcome.OK and result.worker == "two"
    assert fleet.began("two") == ["probes/0000"]
    assert fleet.said[-1] == "Worker one was lost: probes/0000 goes to another worker."
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in orphans)
    assert codec.read(place / RESULT, ProbeResult) == result


def test_what_cost_two_workers_is_a_crash_with_its_evidence_and_costs_no_third(fleet) -> None:
    fleet.worker("one")
    launcher = fleet.launcher()
    future, _ = running(fleet, launcher)
    fleet.kill("one")
    fleet.worker("two")
    until(lambda: fleet.began("two"))
    fleet.kill("two")
    fleet.worker("three")

    result = future.result()
    again = launcher.run(LONG, fleet.place(1))

    assert result.outcome is Outcome.CRASHED
    assert "worker one was lost" in result.failure.evidence and "worker two was lost" in result.failure.evidence
    assert again.outcome is Outcome.CRASHED
    assert fleet.said[-1] == "Worker two was lost: probes/0000 has cost two workers and counts as crashed."
    assert fleet.began("three") == []


def test_a_worker_that_is_lost_between_two_probes_is_named(fleet) -> None:
    fleet.worker("one")
    fleet.worker("two")
    launcher = fleet.launcher(expected=2)
    until(lambda: len(launcher.workers()) == 2)

    fleet.kill("two")
    until(lambda: len(launcher.workers()) == 1)

    assert fleet.said == ["Worker two was lost while it was idle."]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_is_stopped_is_named(fleet, number) -> None:
    fleet.worker("one")
    fleet.worker("two", heeds="yes")
    launcher = fleet.launcher(expected=2)
    until(lambda: len(launcher.workers()) == 2)

    fleet.kill("two", number)
    until(lambda: len(launcher.workers()) == 1)

    assert fleet.said == ["Worker two has left: 1 of 2 workers are there."]


def test_the_study_keeps_the_machine_of_a_worker_that_is_gone(fleet) -> None:
    fleet.worker("one")
    fleet.worker("two")
    launcher = fleet.launcher(expected=2)
    (fleet.folder / "study" / disk.STUDY).write_text("{}")
    until(lambda: len(launcher.workers()) == 2)

    fleet.kill("two")
    until(lambda: len(launcher.workers()) == 1)

    kept = [(one.name, one.host, one.has_left) for one in read_workers(fleet.folder / "study")]
    assert kept == [("one", os.uname().nodename, False), ("two", os.uname().nodename, True)]


SEARCH = """
import sys
from pathlib import Path
from tests.fleet.fleet import QUICK
from tests.fleet.test_faults import LONG
from autotune.fleet.launcher import FleetLauncher
from autotune.fleet.records import QueuedStudy
url, folder = sys.argv[1], Path(sys.argv[2])
study = QueuedStudy(name="study", target="ok", target_digest="", isolation="fresh")
FleetLauncher(url, study, folder, timing=QUICK).run(LONG, folder / "probes" / "0000")
"""


def test_a_search_that_was_killed_finds_the_result_of_its_last_probe(fleet) -> None:
    fleet.worker("one")
    place, root = fleet.place(0), Path(__file__).parents[2]
    search = subprocess.Popen([sys.executable, "-c", SEARCH, fleet.url, str(fleet.folder / "study")], cwd=root)
    until(lambda: fleet.began("one"))

    search.kill()
    search.wait()
    resumed = fleet.launcher()
    resumed.run(example(ProbeRequest, "ok"), fleet.place(1))

    assert codec.read(place / RESULT, ProbeResult).outcome is Outcome.OK
    assert fleet.began("one") == ["probes/0000", "probes/0001"]


def test_workers_of_a_search_that_was_killed_say_so_and_go_on_with_it(fleet) -> None:
    fleet.worker("one")
    fleet.place(0)
    command = [sys.executable, "-c", SEARCH, fleet.url, str(fleet.folder / "study")]
    search = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    until(lambda: fleet.began("one"))

    search.kill()
    search.wait()
    fleet.worker("two")
    until(lambda: all(NOT_RUNNING in fleet.log(name).read_text() for name in ("one", "two")))
    joined_before = "has joined" in fleet.log("two").read_text()
    resumed = fleet.launcher(expected=2)
    until(lambda: len(resumed.workers()) == 2)

    said = {name: fleet.log(name).read_text() for name in ("one", "two")}
    assert not joined_before
    assert said["two"].splitlines()[:2] == [NOT_RUNNING, "The search of study goes on."]
    until(lambda: "The search of study goes on." in fleet.log("one").read_text())
    assert {text.count("is not running") for text in said.values()} == {1}


def test_workers_of_a_search_that_does_not_go_on_leave_with_an_error(fleet) -> None:
    fleet.worker("one", timing=replace(QUICK, patience=8.0))
    launcher = fleet.launcher()
    until(lambda: launcher.workers())

    launcher.close(has_ended=False)  # as Ctrl-C does
    fleet.worker("two", timing=replace(QUICK, patience=8.0))
    ended = [fleet.workers[name].wait(60) for name in ("one", "two")]

    for name in ("one", "two"):
        said = fleet.log(name).read_text()
        assert NOT_RUNNING in said
        assert "EnvironmentUnfit: The search of study has not been running for " in said
    assert 0 not in ended


def test_workers_of_a_search_that_does_not_begin_say_what_to_start_and_leave_with_an_error(fleet) -> None:
    fleet.launcher().close(has_ended=True)
    for name, study in (("one", "stud"), ("two", "study")):
        fleet.worker(name, study=study, timing=replace(QUICK, unbegun=1.0))

    ended = [fleet.workers[name].wait(60) for name in ("one", "two")]

    for name, study, state in (("one", "stud", "not begun"), ("two", "study", "ended")):
        said = fleet.log(name).read_text()
        assert said.startswith(f"The search of {study} has {state}: start one with `autotune search ")
        assert f"EnvironmentUnfit: No search of {study} began within 1.0 s. " in said
    assert 0 not in ended


def test_a_restart_of_the_server_costs_nothing(fleet) -> None:
    fleet.worker("one")
    fleet.worker("two")
    future, _ = running(fleet, fleet.launcher(expected=2))

    fleet.server.restart()
    result = future.result()

    assert result.outcome is Outcome.OK
    assert len(fleet.began("one") + fleet.began("two")) == 1


def test_a_server_that_stands_still_costs_nothing(fleet) -> None:
    fleet.worker("one")
    future, _ = running(fleet, fleet.launcher())

    frozen = fleet.server.freeze()
    time.sleep(QUICK.grace)
    fleet.server.thaw(frozen)

    assert future.result().outcome is Outcome.OK
    assert fleet.began("one") == ["probes/0000"]


def test_a_wire_that_was_cut_for_a_moment_costs_nothing(fleet) -> None:
    wire = Wire(fleet.server.port)
    fleet.worker("one", url=fleet.url.replace(str(fleet.server.port), str(wire.port)))
    future, _ = running(fleet, fleet.launcher())

    wire.cut()
    time.sleep(QUICK.fence / 4)
    wire.mend()
    result = future.result()
    wire.cut()

    assert result.outcome is Outcome.OK
    assert fleet.began("one") == ["probes/0000"]


def test_a_worker_that_comes_back_in_time_carries_its_probe_out_anew(fleet) -> None:
    """It stopped the probe for want of a lease, and nobody was given the job meanwhile."""
    wire = Wire(fleet.server.port)
    fleet.worker(
        "one", url=fleet.url.replace(str(fleet.server.port), str(wire.port)), timing=replace(QUICK, fence=QUICK.poll)
    )
    future, _ = running(fleet, fleet.launcher())
    until(lambda: probes_of(fleet.workers["one"].pid))

    wire.cut()
    until(lambda: not probes_of(fleet.workers["one"].pid))
    wire.mend()
    until(lambda: fleet.workers["one"].poll() is not None or future.done())
    survived = fleet.workers["one"].poll() is None
    wire.cut()

    assert survived, fleet.log("one").read_text()
    assert "was stopped: the database has not answered" in fleet.log("one").read_text()
    assert future.result().outcome is Outcome.OK


def test_a_worker_that_is_cut_off_stops_its_probe_before_another_begins_it(fleet) -> None:
    wire = Wire(fleet.server.port)
    fleet.worker("one", url=fleet.url.replace(str(fleet.server.port), str(wire.port)))
    future, _ = running(fleet, fleet.launcher(), request=example(ProbeRequest, "hang"))
    until(lambda: probes_of(fleet.workers["one"].pid))

    wire.cut()
    until(lambda: not probes_of(fleet.workers["one"].pid))
    state = fleet.launchers[0].queue.left_over()[0][3]
    fleet.worker("two")
    until(lambda: fleet.began("two"))
    wire.mend()
    fleet.kill("two", signal.SIGTERM)
    wire.cut()

    assert state == "running"
    assert "was stopped: the database has not answered" in fleet.log("one").read_text()
    fleet.launchers[0].stop()
    with pytest.raises(Stopped):
        future.result()


def test_an_interrupt_stops_the_probe_on_its_worker(fleet) -> None:
    fleet.worker("one")
    launcher = fleet.launcher()
    future, place = running(fleet, launcher, request=example(ProbeRequest, "hang"))
    until(lambda: probes_of(fleet.workers["one"].pid))

    launcher.stop()
    with pytest.raises(Stopped):
        future.result()
    until(lambda: not probes_of(fleet.workers["one"].pid))

    assert not (place / REQUEST).exists() and not (place / RESULT).exists()
    assert fleet.workers["one"].poll() is None


def test_a_worker_that_is_asked_to_stop_gives_its_probe_back_at_once(fleet) -> None:
    fleet.worker("one")
    launcher = fleet.launcher()
    future, _ = running(fleet, launcher)

    os.kill(fleet.workers["one"].pid, signal.SIGINT)
    fleet.worker("two")

    assert future.result().worker == "two"
    assert launcher.queue.database.run(lambda cursor: cursor.execute("SELECT 1").fetchone()) == (1,)


def test_a_worker_that_is_asked_to_stop_does_not_wait_for_a_server_that_is_down(fleet) -> None:
    wire = Wire(fleet.server.port)
    address = fleet.url.replace(str(fleet.server.port), str(wire.port))
    fleet.worker("one", url=address, timing=replace(QUICK, patience=600.0), heeds="Ctrl-C")
    running(fleet, fleet.launcher(), request=example(ProbeRequest, "hang"))
    until(lambda: probes_of(fleet.workers["one"].pid))
    wire.cut()
    one = fleet.workers["one"]

    os.kill(one.pid, signal.SIGTERM)
    until(lambda: one.poll() is not None)
    fleet.launchers[0].stop()

    assert "KeyboardInterrupt" in fleet.log("one").read_text()


def test_a_worker_that_hangs_loses_its_probe_when_its_time_is_over(fleet) -> None:
    """Its lease is held: the process is there, and does nothing."""
    fleet.worker("one")
    launcher = fleet.launcher()
    future, _ = running(fleet, launcher)
    os.kill(fleet.workers["one"].pid, signal.SIGSTOP)

    launcher.queue.database.run(
        lambda cursor: cursor.execute("UPDATE autotune_job SET taken_at = taken_at - interval '1 day'")
    )
    fleet.worker("two")
    result = future.result()
    os.kill(fleet.workers["one"].pid, signal.SIGCONT)
    until(lambda: any(word in fleet.log("one").read_text() for word in ("late, not used", "was stopped")))

    assert result.worker == "two"
    assert "Worker one did not answer in time: probes/0000 goes to another worker." in fleet.said


def test_what_no_waiting_changes_is_told_at_once(fleet) -> None:
    database = Database(fleet.url.rpartition("/")[0] + "/nowhere", patience_seconds=600)
    began = time.monotonic()

    with pytest.raises(EnvironmentUnfit, match=r'could not be reached: .*database "nowhere" does not exist'):
        database.run(lambda cursor: None)

    assert database.connections == 0
    assert time.monotonic() - began < FIRST_PATIENCE_SECONDS


def test_a_server_that_never_answers_is_told_apart_from_one_that_went(fleet, monkeypatch) -> None:
    monkeypatch.setattr("autotune.fleet.database.FIRST_PATIENCE_SECONDS", 0.1)
    url = fleet.url.replace(str(fleet.server.port), "1")

    with pytest.raises(Exception, match="could not be reached") as found:
        Database(url, patience_seconds=600).run(lambda cursor: None)

    assert "a-secret" not in str(found.value)
    assert "postgresql://autotune@127.0.0.1:1/" in str(found.value)


def test_a_server_that_went_is_told_once_and_that_it_is_back(fleet, monkeypatch) -> None:
    monkeypatch.setattr("autotune.fleet.database.TOLD_SECONDS", 0.0)
    wire, said = Wire(fleet.server.port), []
    url = fleet.url.replace(str(fleet.server.port), str(wire.port))
    database = Database(url, patience_seconds=60, tell=said.append)
    database.run(lambda cursor: None)

    wire.cut()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(database.run, lambda cursor: None)
        until(lambda: said)
        time.sleep(1.0)  # for several attempts
        wire.mend()
        waiting.result()
    database.close()
    wire.cut()

    address = url.replace(":a-secret", "")
    assert said == [f"{address} does not answer: waiting for up to 60 s.", f"{address} answers again."]


def test_a_worker_that_waits_for_a_search_that_is_not_there_names_those_that_are(fleet) -> None:
    fleet.launcher()
    fleet.worker("one", study="stud")

    until(lambda: "study.\n" in fleet.log("one").read_text())

    assert re.fullmatch(
        r"The search of stud has not begun: start one with `autotune search ... --storage ... --study studies/stud`. "
        r"This worker waits for it until \d\d:\d\d UTC \(1:00 h\). Other searches in this database: study.\n",
        fleet.log("one").read_text(),
    )


def test_threads_that_wait_are_answered_each_with_its_own(fleet) -> None:
    fleet.worker("one")
    fleet.worker("two")
    launcher = fleet.launcher(expected=2)
    until(lambda: len(launcher.workers()) == 2)
    workers = launcher.workers()
    barrier, results = threading.Barrier(2), {}

    def measure(number: int) -> None:
        barrier.wait()
        results[number] = launcher.on(workers[number].id).run(example(ProbeRequest, "measure"), fleet.place(number))

    threads = [threading.Thread(target=measure, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [results[number].worker for number in range(2)] == [worker.name for worker in workers]


def test_fifty_kills_and_two_restarts_lose_nothing_and_run_nothing_twice_at_once(server, tmp_path) -> None:
    tally = soak(server, tmp_path / "fleet", kills=50, restarts=2, workers=4, seed=1)

    assert tally.is_sound, tally.table()
    assert tally.kills == 50 and tally.restarts == 2 and tally.asked
