"""Searches on several machines: all of them explore, one of them races, and each is judged by its own baseline."""

from collections import Counter

import pytest
from msgspec.structs import replace

from autotune.core.codes import Code
from autotune.core.interference_readings import HostInterference
from autotune.errors import EnvironmentUnfit
from autotune.study import disk
from autotune.study.machines import drift_corrected
from autotune.study.view import load_view
from autotune.testing import FakeLauncher, Machine
from tests.fleet.simulated import SimulatedFleet
from tests.worlds import Listener, failed, searched

ASKED = {"probes": 24, "time_budget_seconds": 1e6}
EQUAL = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}


def purposes(requests):
    return [request.purpose for request in requests]


@pytest.mark.parametrize("sampler", ["structured", "tpe", "random"])
def test_all_workers_explore_at_once_and_nothing_is_probed_twice(tmp_path, sampler):
    fleet = SimulatedFleet(EQUAL)

    searched(tmp_path / "study", fleet, sampler=sampler, **ASKED)

    searching = Counter(one.config for name in EQUAL for one in fleet.ran[name] if one.purpose == "search")
    assert fleet.at_once == len(EQUAL)
    assert set(searching.values()) == {1}
    assert all("search" in purposes(fleet.ran[name]) for name in EQUAL)


def test_every_worker_measures_the_baseline_before_anything_else(tmp_path):
    fleet = SimulatedFleet(EQUAL, joining={"d": 12})

    searched(tmp_path / "study", fleet, **ASKED)

    assert {name: purposes(fleet.ran[name])[0] for name in EQUAL} == {
        "a": "baseline", "b": "reference", "c": "reference", "d": "reference",
    }  # fmt: skip
    assert "search" in purposes(fleet.ran["d"])


def test_the_race_and_all_that_is_compared_in_rounds_runs_on_one_worker(tmp_path):
    fleet = SimulatedFleet(EQUAL)

    searched(tmp_path / "study", fleet, **ASKED)

    where = {name for name in EQUAL if {"confirm", "ablation"} & {*purposes(fleet.ran[name])}}
    assert where == {"a"}


def test_probes_of_a_slower_machine_are_compared_by_its_own_baseline(tmp_path):
    quiet = Machine(noise_between_probes=0.0, noise_between_steps=0.0)
    fleet = SimulatedFleet({"a": 1.0, "b": 0.93}, machine=quiet)

    searched(tmp_path / "study", fleet, **ASKED)

    view = load_view(tmp_path / "study")
    there = [
        (verdict.value, fleet.throughput(trial.config))
        for trial, verdict in drift_corrected(view.judged, view.request.baseline)
        if trial.result.worker == "b" and trial.purpose == "search" and verdict.feasible
    ]
    assert there
    assert all(value == pytest.approx(truth, rel=0.01) for value, truth in there)


def test_a_machine_that_is_off_by_more_than_a_tenth_gets_no_more_probes(tmp_path):
    fleet, told = SimulatedFleet({"a": 1.0, "b": 0.7, "c": 1.0}), Listener()

    searched(tmp_path / "study", fleet, told, **ASKED)

    assert {"reference"} == {*purposes(fleet.ran["b"])}
    assert "slower" in fleet.workers()[1].quarantined
    assert any("Worker b gets no more probes" in note for note in told.notes)


def test_the_answer_is_measured_again_on_a_second_machine(tmp_path):
    fleet = SimulatedFleet(EQUAL)

    answer = searched(tmp_path / "study", fleet, **ASKED)

    assert purposes(fleet.ran["b"]).count("elsewhere") == 4
    assert Code.AGREES_ELSEWHERE in [one.code for one in answer.reasons]
    assert answer == disk.codec.read(tmp_path / "study" / disk.BEST, type(answer))


def test_another_gain_on_the_second_machine_is_a_warning(tmp_path):
    fleet = SimulatedFleet(EQUAL)
    usual = fleet._slowed

    def odd(name, result):
        made = usual(name, result)
        if (
            name == "b"
            and fleet.ran["b"][-1].purpose == "elsewhere"
            and fleet.ran["b"][-1].config != fleet.ran["a"][0].config
        ):
            fleet.speeds["b"], before = 0.5, fleet.speeds["b"]
            made = usual(name, result)
            fleet.speeds["b"] = before
        return made

    fleet._slowed = odd

    answer = searched(tmp_path / "study", fleet, **ASKED)

    (warning,) = [one for one in answer.warnings if one.code is Code.DIFFERS_ELSEWHERE]
    assert f"this is {warning.figure('speedup'):.2f} times as fast" in warning.text


def test_rounds_on_the_second_machine_have_the_mean_of_all_other_rounds(tmp_path):
    fleet = SimulatedFleet(EQUAL)
    usual = fleet._slowed

    def once_slow(name, result):
        won = [one for one in fleet.ran[name] if one.purpose == "elsewhere" and one.config != fleet.ran["a"][0].config]
        fleet.speeds["b"] = 0.25 if won and len(won) == 2 and fleet.ran[name][-1] is won[-1] else 1.0
        return usual(name, result)

    fleet._slowed = once_slow

    answer = searched(tmp_path / "study", fleet, **ASKED)

    (warning,) = [one for one in answer.warnings if one.code is Code.DIFFERS_ELSEWHERE]
    assert warning.figure("speedup") == pytest.approx(answer.speedup * 0.25**0.5, rel=0.1)


def test_what_does_not_run_on_the_second_machine_is_a_warning_of_its_own(tmp_path):
    fleet = SimulatedFleet(EQUAL)
    usual = fleet._slowed
    fleet._slowed = lambda name, result: (
        failed() if fleet.ran[name][-1:] and fleet.ran[name][-1].purpose == "elsewhere" else usual(name, result)
    )

    answer = searched(tmp_path / "study", fleet, **ASKED)

    (warning,) = [one for one in answer.warnings if one.code is Code.FAILS_ELSEWHERE]
    assert warning.numbers.keys() == {"worker", "here"}


def test_a_fault_of_one_worker_ends_the_search_and_leaves_no_other_step_behind(tmp_path):
    fleet = SimulatedFleet(EQUAL)

    def fault(name, request):
        if name == "c" and request.purpose == "search":
            raise EnvironmentUnfit("the disk is full")

    fleet.fault = fault

    with pytest.raises(EnvironmentUnfit, match="the disk is full"):
        searched(tmp_path / "study", fleet, **ASKED)

    assert fleet.is_stopped
    assert fleet._running.total() == 0


def test_a_search_without_a_fleet_names_no_worker(tmp_path):
    searched(tmp_path / "study", FakeLauncher(), **ASKED)

    assert {trial.result.worker for trial in load_view(tmp_path / "study").trials} == {""}


def test_other_work_on_the_machine_of_the_search_is_of_no_interest_to_workers(tmp_path):
    def interfered(name, result):
        measured = result.measurement
        busy = HostInterference(run_queue_wait_share=0.5, foreign_cores=2.0)
        measured = measured and replace(measured, interference=busy)
        return usual(name, replace(result, measurement=measured))

    fleet, told = SimulatedFleet({"a": 1.0, "b": 1.0}), Listener()
    usual, fleet._slowed = fleet._slowed, interfered

    searched(tmp_path / "study", fleet, told, **ASKED)

    assert not any("quiet machine" in note for note in told.notes)


def test_an_interrupt_keeps_what_is_finished_and_the_same_search_goes_on(tmp_path):
    fleet, told = SimulatedFleet(EQUAL), Listener()

    def fault(name, request):
        if name == "c" and request.purpose == "search":
            raise KeyboardInterrupt

    fleet.fault = fault
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path / "study", fleet, told, **ASKED)
    kept = len(load_view(tmp_path / "study").trials)
    answer = searched(tmp_path / "study", SimulatedFleet(EQUAL), **ASKED)

    assert told.stopped is not None and fleet.is_stopped
    assert kept >= 1
    assert answer.probes > kept
