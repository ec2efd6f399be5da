"""How much of the time budget is kept for a race, and in which words it is announced."""

import pytest

from autotune import codec
from autotune import folder as disk
from autotune.guard import Guard
from autotune.launch.base import REQUEST
from autotune.records import Goal
from autotune.requests import ProbeBudget, ProbeRequest
from autotune.testing import FakeLauncher, Machine
from autotune.tuning.numerics import Numerics
from autotune.tuning.prober import BRIEF, Prober
from autotune.tuning.race import FEWEST_LEADERS, GOAL_ROUNDS, probes
from autotune.tuning.runoff import RunOff
from tests.worlds import Listener, config, space, study_request

NO_LOADING = Machine(sample_loading_seconds=1e-6)


def _after(folder, workers, listener, left=0.0, **asked):
    """A run-off after probes that are all alike but for their workers, the first one being the baseline."""
    request, launcher = study_request(**asked), FakeLauncher(machine=NO_LOADING)
    prober = Prober(disk.make(folder), request, Guard(space()), launcher, listener, lambda seconds: None)
    prober.twice(request.baseline, "baseline")
    for count in workers:
        prober.twice(config(batch_size=64, num_workers=count), "search")
    numerics = Numerics(folder, request, launcher, listener, lambda: left)
    return prober, RunOff(request, prober, numerics, listener, lambda: left)


@pytest.mark.parametrize(("workers", "leaders"), [((), 1), ((1, 2), 3), ((1, 2, 4, 8), 5)])
def test_time_is_kept_for_eight_rounds_of_all_who_would_race_now(tmp_path, workers, leaders):
    prober, runoff = _after(tmp_path, workers, Listener())

    probe_seconds = prober.expected_seconds(ProbeBudget())
    assert runoff.wanted_seconds() == pytest.approx(probe_seconds * probes(leaders, GOAL_ROUNDS, 1), rel=0.02)


def test_the_least_that_is_kept_are_two_rounds_of_three_and_the_baseline(tmp_path):
    prober, runoff = _after(tmp_path, (1,), Listener())

    least = prober.expected_seconds(BRIEF) * 2 * (FEWEST_LEADERS + 1)
    assert runoff.shortest_seconds() == pytest.approx(least, rel=0.05)
    assert runoff.spare_seconds() == -runoff.shortest_seconds()


def test_once_there_was_a_confirmation_all_that_is_left_is_to_spare(tmp_path):
    _, runoff = _after(tmp_path, (1,), Listener(), 100.0)

    runoff.run()

    assert runoff.spare_seconds() == 100.0


@pytest.mark.parametrize(("left", "window"), [(60.0, ProbeBudget()), (35.0, BRIEF), (0.0, BRIEF)])
def test_a_race_measures_briefly_where_time_is_too_short_for_its_fewest_rounds(tmp_path, left, window):
    listener = Listener()
    prober, runoff = _after(tmp_path, (1, 2, 4), listener, left)

    runoff.run()

    raced = [t.number for t, _ in prober.judged if t.purpose == "confirm"]
    asked = [codec.read(tmp_path / disk.PROBES / f"{number:04d}" / REQUEST, ProbeRequest).budget for number in raced]
    assert set(asked) == {window}
    assert any("measured briefly" in note for note in listener.notes) is (window == BRIEF)


def test_where_something_else_than_speed_is_sought_no_window_is_cut(tmp_path):
    listener = Listener()
    _, runoff = _after(tmp_path, (1, 2, 4), listener, 0.0, goal=Goal(global_batch=64, objective="memory"))

    runoff.run()

    assert not any("measured briefly" in note for note in listener.notes)


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (0.0, "Confirming 3 configurations in 3 interleaved rounds of fresh processes, "),
        (1e6, "Confirming 5 configurations in up to 12 interleaved rounds of fresh processes, the slower half left "
              "behind after 3, "),
    ],
)  # fmt: skip
def test_the_plan_is_told_in_a_line(tmp_path, left, said):
    listener = Listener()
    _, runoff = _after(tmp_path, (1, 2, 4, 8), listener, left)

    raced = runoff.run()

    (plan,) = [note for note in listener.notes if note.startswith("Confirming")]
    assert plan.startswith(said)
    assert ("more than the time budget" in plan) is (left == 0)
    assert raced[-1].config == study_request().baseline


def test_without_time_the_one_probe_of_a_baseline_alone_stands(tmp_path):
    listener = Listener()
    prober, runoff = _after(tmp_path, (), listener, 5.0)

    (alone,) = runoff.run()

    assert [trial.number for trial in alone.trials] == [0]
    assert len(alone.scores) == len(prober.judged) == 1
    assert any("its latest probe stands" in note for note in listener.notes)


def test_a_baseline_alone_is_measured_again_all_the_same(tmp_path):
    listener = Listener()
    _, runoff = _after(tmp_path, (), listener, 1e6)

    (alone,) = runoff.run()

    assert len(alone.rounds) == 3
    assert any(note.startswith("Confirming 1 configuration in") for note in listener.notes)
