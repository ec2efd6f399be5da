"""The page of a study shows its workers: where they are, what each measures, and how fast it is."""

import json

from msgspec.structs import replace

from autotune.fleet.state import read_workers, write_workers
from autotune.report.fleet import worker_rows
from autotune.report.page import render
from autotune.study import disk
from autotune.study.view import load_view
from autotune.testing import FakeLauncher, Machine
from tests.fleet.simulated import SimulatedFleet
from tests.worlds import searched

ASKED = {"probes": 12, "time_budget_seconds": 1e6}


def test_the_page_names_each_worker_with_its_speed(tmp_path):
    quiet = Machine(noise_between_probes=0.0, noise_between_steps=0.0)
    fleet = SimulatedFleet({"a": 1.0, "b<i>": 0.93}, machine=quiet)
    folder = tmp_path / "study"
    searched(folder, fleet, **ASKED)
    write_workers(folder, fleet.workers())

    view = load_view(folder)
    rows, page = worker_rows(view), render(view)

    assert [(row.name, row.host, row.speed) for row in rows] == [
        ("a", "a", "the home"),
        ("b<i>", "b<i>", "7% slower"),
    ]
    assert sum(row.probes for row in rows) == len(view.trials)
    assert "<h2>Workers</h2>" in page and "b&lt;i&gt;" in page and "b<i>" not in page


def test_the_page_shows_how_far_each_machine_has_drifted(tmp_path):
    quiet = Machine(noise_between_probes=0.0, noise_between_steps=0.0)
    fleet = SimulatedFleet({"a": 1.0, "b": 1.0}, machine=quiet)
    fleet.fault = lambda name, _: fleet.speeds.update(b=0.93) if len(fleet.ran["b"]) > 1 else None
    searched(tmp_path / "study", fleet, probes=40, time_budget_seconds=1e6)

    rows = {row.name: row for row in worker_rows(load_view(tmp_path / "study"))}
    assert (rows["a"].drift, rows["b"].drift) == ("none", "7% slower")


def test_the_machine_of_a_worker_that_has_left_stays(tmp_path):
    fleet = SimulatedFleet({"a": 1.0, "b": 1.0})
    folder = tmp_path / "study"
    searched(folder, fleet, **ASKED)
    there, leaving = fleet.workers()
    write_workers(folder, (there, replace(leaving, job="probes/0003", host="node2.example")))

    write_workers(folder, (there,))
    write_workers(folder, (replace(there, job="probes/0004"),))

    rows = {row.name: row for row in worker_rows(load_view(folder))}
    assert (rows["b"].host, rows["b"].state) == ("node2.example", "gone")
    assert rows["b"].probes > 0 and rows["a"].state == "the search has ended"
    assert "node2.example" in render(load_view(folder))

    write_workers(folder, (there, leaving))  # it comes back
    assert [one.has_left for one in read_workers(folder)] == [False, False]


def test_a_file_of_an_earlier_version_is_read(tmp_path):
    fleet = SimulatedFleet({"a": 1.0})
    (tmp_path / disk.STUDY).write_text("{}")
    write_workers(tmp_path, fleet.workers())
    earlier = (tmp_path / disk.FLEET).read_text()
    state = json.loads(earlier)
    del state["workers"][0]["has_left"]
    (tmp_path / disk.FLEET).write_text(json.dumps(state))

    assert read_workers(tmp_path) == fleet.workers()


def test_a_search_on_one_machine_has_no_table_of_workers(tmp_path):
    searched(tmp_path / "study", FakeLauncher(), **ASKED)

    assert "<h2>Workers</h2>" not in render(load_view(tmp_path / "study"))


def test_a_damaged_file_of_workers_is_as_if_there_were_none(tmp_path):
    (tmp_path / disk.FLEET).write_text("{")

    assert read_workers(tmp_path) == ()
    assert read_workers(tmp_path / "nowhere") == ()


def test_nothing_is_written_before_a_study_has_begun(tmp_path):
    write_workers(tmp_path, ())

    assert list(tmp_path.iterdir()) == []
