"""Stories of time budgets: kept within a tenth whatever a probe takes, and whatever others do meanwhile."""

from contextlib import suppress

import msgspec
import pytest

from autotune.core.interference_readings import HostInterference
from autotune.core.records import StepFacts
from autotune.core.requests import InspectRequest, ProbeRequest
from autotune.core.results import Outcome
from autotune.errors import NoRecommendation, TargetError
from autotune.preparation.settings import Settings
from autotune.study.view import load_view
from autotune.testing import FakeLauncher, Machine
from autotune.tuning.engine import search
from tests.worlds import Listener, declared

MOST = 1.1  # of the budget
DTYPES = (None, "bfloat16", "float16")
USUAL = Machine()


def _slow(times):
    """A machine on which everything takes so many times as long."""
    return Machine(
        fixed_seconds={dtype: times * USUAL.fixed_seconds[dtype] for dtype in DTYPES},
        per_sample_seconds={dtype: times * USUAL.per_sample_seconds[dtype] for dtype in DTYPES},
        optimizer_seconds=times * USUAL.optimizer_seconds,
        sample_loading_seconds=times * USUAL.sample_loading_seconds,
    )


class World(FakeLauncher):
    """A fake machine whose steps take so many `times` as long, and with `busy` half of the time of each is others'."""

    def __init__(self, *, starting, times, busy, step_known=True, inspecting=0.0):
        facts, machine = declared(), _slow(2 * times if busy else times)
        step = StepFacts(
            loss=2.3, seconds=0.1 * times if step_known else 0.0, parameters_with_gradient=1, trainable_parameters=1
        )
        super().__init__(
            machine=machine,
            facts=msgspec.structs.replace(facts, step=step),
            starting_seconds={"start": starting},
            results={ProbeRequest: self._disturbed},
        )
        self._busy, self._inspecting = busy, inspecting

    def _disturbed(self, request):
        result = self._probe(request)
        if not self._busy or result.measurement is None:
            return result
        shared = HostInterference(run_queue_wait_share=0.5, foreign_cores=1.0)
        return msgspec.structs.replace(
            result, measurement=msgspec.structs.replace(result.measurement, interference=shared)
        )

    def run(self, request, folder):
        """Answer as the fake machine does, after an inspection that takes as long as it is told."""
        answer = super().run(request, folder)
        if not isinstance(request, InspectRequest):
            return answer
        self._elapsed_seconds += self._inspecting
        return msgspec.structs.replace(answer, elapsed_seconds=self._inspecting)

    def rest(self, seconds):
        """Let time pass."""
        self._elapsed_seconds += seconds


class Crashing(World):
    """Such a machine, on which the configuration of probe `number` crashes, each time in so many seconds."""

    def __init__(self, *, number, crash_seconds, **options):
        super().__init__(busy=False, **options)
        self._number, self._crash_seconds, self._crashing = number, crash_seconds, None
        self._faults[ProbeRequest] = self._fault

    def _fault(self, request):
        if request.number == self._number:
            self._crashing = request.config
        return Outcome.CRASHED if request.config == self._crashing else None

    def run(self, request, folder):
        """Answer as the fake machine does, or crash after that time."""
        answer = super().run(request, folder)
        if answer.outcome is not Outcome.CRASHED:
            return answer
        self._elapsed_seconds += self._crash_seconds - answer.elapsed_seconds
        return msgspec.structs.replace(answer, elapsed_seconds=self._crash_seconds)


def _searched(folder, world, seconds, **settings):
    listener = Listener()
    told = Settings(target="model.py", study=folder, time_budget_seconds=seconds, **settings)
    return search(told, world, listener, world.clock, world.rest), listener


# Seconds to start, and how much slower than usual its steps are: a probe of about 1, 2, 6, 20 and 60 s.
PROBES = {"1 s": (0.1, 0.1), "2 s": (0.3, 1), "6 s": (3.5, 3), "20 s": (0.3, 40), "60 s": (0.3, 120)}


@pytest.mark.parametrize("busy", [False, True], ids=["quiet", "busy"])
@pytest.mark.parametrize("seconds", [30, 60, 120, 600])
@pytest.mark.parametrize("probe", PROBES)
def test_a_budget_is_kept_and_what_is_recommended_was_run(tmp_path, probe, seconds, busy):
    starting, times = PROBES[probe]
    world = World(starting=starting, times=times, busy=busy)

    answer, listener = _searched(tmp_path, world, seconds)

    trials = load_view(tmp_path).trials
    first = trials[0].result.elapsed_seconds
    ran = [trial.config.values for trial in trials if trial.result.outcome is Outcome.OK]
    assert answer.params in ran
    if first <= seconds:
        assert world.clock() <= MOST * seconds
    else:  # not even the least steps of the baseline fit: nothing else is run, and it is said before
        assert len(trials) == 1
        assert "is short: a probe takes about" in listener.notes[0]


@pytest.mark.parametrize(("probe", "seconds", "busy"), [("6 s", 30, True), ("20 s", 120, True), ("60 s", 120, False)])
def test_time_that_is_too_short_for_rounds_is_used_for_probes(tmp_path, probe, seconds, busy):
    """As seen beside a load: "The time budget is too short to confirm an answer", after 35 of 60 s and one probe."""
    starting, times = PROBES[probe]
    world = World(starting=starting, times=times, busy=busy)

    _, listener = _searched(tmp_path, world, seconds)

    assert any("too short to confirm" in note for note in listener.notes)
    assert world.clock() > 0.8 * seconds  # what is left was too short for a probe


@pytest.mark.parametrize("busy", [False, True], ids=["quiet", "busy"])
@pytest.mark.parametrize("probe", ["2 s", "6 s", "20 s"])
@pytest.mark.parametrize("inspecting", [5.0, 25.0, 38.0])
def test_what_the_inspection_took_is_part_of_the_budget_and_an_overrun_is_said_before_the_first_probe(
    tmp_path, inspecting, probe, busy
):
    starting, times = PROBES[probe]
    world = World(starting=starting, times=times, busy=busy, inspecting=inspecting)

    _, listener = _searched(tmp_path, world, 40)

    trials = load_view(tmp_path).trials
    is_said = "The first probe is run all the same, and may end " in listener.notes[0]
    assert (is_said and len(trials) == 1) or world.clock() <= MOST * 40


def test_a_command_that_was_begun_before_the_search_has_that_time_counted(tmp_path):
    world = World(starting=0.3, times=1, busy=False)
    world.rest(30.0)  # as the command's imports do
    listener, told = Listener(), Settings(target="model.py", study=tmp_path, time_budget_seconds=40)

    search(told, world, listener, world.clock, world.rest, began=0.0)

    assert world.clock() <= MOST * 40
    assert "looking at the target took 30 s" in listener.notes[0]


@pytest.mark.parametrize("crash_seconds", [1.0, 6.0, 12.0])
@pytest.mark.parametrize("number", [1, 4, 7, 8])
def test_a_crash_is_tried_again_only_where_that_is_expected_to_end_in_time(tmp_path, number, crash_seconds):
    world = Crashing(number=number, crash_seconds=crash_seconds, starting=0.3, times=1)

    with suppress(NoRecommendation):
        _searched(tmp_path, world, 30)

    crashed = [one.number for one in load_view(tmp_path).trials if one.result.outcome is Outcome.CRASHED]
    assert crashed in ([number], [number, number + 1])
    assert len(crashed) == 2 or (number, crash_seconds) != (1, 1.0)
    assert world.clock() <= MOST * 30


@pytest.mark.parametrize(("crash_seconds", "tries"), [(5.0, 2), (20.0, 1)])
def test_a_baseline_that_crashes_is_tried_again_only_where_that_is_expected_to_end_in_time(
    tmp_path, crash_seconds, tries
):
    world = Crashing(number=0, crash_seconds=crash_seconds, starting=0.3, times=1)

    with pytest.raises(TargetError, match="The target crashed"):
        _searched(tmp_path, world, 30)

    assert world.clock() == tries * crash_seconds
