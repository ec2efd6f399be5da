"""What a study knows: which probes count, what they say of a configuration, and what it takes from the disk."""

import pytest
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.interference_readings import HostInterference
from autotune.core.records import Goal
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Outcome
from autotune.core.stats import typical_rate
from autotune.launch.base import REQUEST, RESULT
from autotune.study import disk
from autotune.study.history import History
from autotune.study.summary import Compared, ConfigSummary, Status
from tests.worlds import bad, config, earlier, facts, failed, good, measured, study_request, trial

BASELINE = trial(measured(100.0), 0, "baseline", batch_size=64)
BUSY = HostInterference(run_queue_wait_share=0.3, foreign_cores=1.0)


def _busy(rate):
    result = measured(rate)
    return replace(result, measurement=replace(result.measurement, interference=BUSY))


def _history(*trials):
    return History(study_request(), trials)


def test_what_is_added_is_judged_and_raises_the_version():
    history = _history(BASELINE)

    _, verdict = history.add(trial(failed(), 1))

    assert not verdict.feasible
    assert (history.version, history.count_before, history.first_number) == (1, 1, 1)
    assert history.judged[-1][1] == verdict


def test_nobody_outside_can_add_to_it():
    history = _history(BASELINE)

    assert isinstance(history.judged, tuple)
    history.search_results.clear()

    assert len(history.search_results) == 1


def test_a_probe_that_was_superseded_is_neither_the_best_nor_what_others_must_beat():
    disturbed, repeat = trial(_busy(200.0), 1, num_workers=2), trial(measured(150.0), 2, num_workers=2)

    history = _history(BASELINE, disturbed, repeat)

    assert [one.number for one, _ in history.valid] == [0, 2]
    assert history.best_score == pytest.approx(150.0)
    assert history.incumbent(config(num_workers=4), 3) == pytest.approx(150.0)


def test_confirmations_and_references_are_no_search_results():
    others = [trial(measured(300.0), number, purpose) for number, purpose in enumerate(("confirm", "reference"), 1)]

    assert [one.number for one, _ in _history(BASELINE, *others).search_results] == [0]


def test_a_summary_is_corrected_for_the_drift_of_the_machine():
    found = trial(measured(80.0), 5, num_workers=2)
    slower = [trial(measured(50.0), number, "reference", batch_size=64) for number in (10, 11)]

    history = _history(BASELINE, found, *slower)

    assert history.summary(found.config).found == pytest.approx(80.0 / 0.75)
    assert history.summary(config(num_workers=8)).found is None


def test_a_fault_of_the_target_at_the_baseline_is_probed_again(tmp_path):
    for number, result in enumerate((failed(Outcome.USER_ERROR), measured())):
        _, place = disk.new_attempt(tmp_path, ProbeRequest)
        asked = ProbeRequest(target="m.py", config=config(), device="cpu", number=number, purpose="baseline")
        codec.write(place / REQUEST, asked)
        codec.write(place / RESULT, result)

    assert [one.number for one, _ in History.read(tmp_path, study_request()).judged] == [1]


@pytest.mark.parametrize(("rates", "mean"), [((), 0.0), ((7.0,), 7.0), ((100.0, 400.0), 200.0)])
def test_the_mean_of_one_or_two_is_geometric(rates, mean):
    assert typical_rate(rates) == pytest.approx(mean)


def test_one_bad_probe_moves_the_mean_hardly():
    assert typical_rate((100.0, 100.0, 100.0, 100.0, 50.0)) == pytest.approx(100.0)


def _summary(*verdicts, **values):
    trials = tuple(trial(measured(), number) for number in range(len(verdicts)))
    return ConfigSummary(config=config(), trials=trials, verdicts=verdicts, **values)


@pytest.mark.parametrize(
    ("summary", "status"),
    [
        (_summary(good(1.0)), Status.FOUND),
        (_summary(good(1.0), rounds=(0,)), Status.CONFIRMED),
        (_summary(good(1.0), rounds=(0,), is_behind=True), Status.BEHIND),
        (_summary(good(1.0), rounds=(0,), refused=earlier("learns less")), Status.REFUSED),
        (_summary(good(1.0), bad(), rounds=(0, 1), refused=earlier("learns less")), Status.FAILED),
    ],
)
def test_a_status_says_how_far_a_configuration_came(summary, status):
    assert summary.status is status


def test_the_rounds_of_a_race_override_the_mean_of_its_own():
    summary = _summary(good(10.0), compared=Compared(score=12.0, samples_per_second=120.0, relative_half_width=0.1))

    assert (summary.score, summary.samples_per_second) == (12.0, 120.0)
    assert summary.bounds == pytest.approx((108.0, 132.0))


def _duration(history, batch_size, accumulation, samples_per_second=100.0):
    return history.times.probe_duration.seconds(batch_size / samples_per_second, accumulation)


def test_a_probe_is_expected_to_take_what_is_fixed_and_a_few_cycles():
    history = _history(BASELINE)  # steps of 0.64 s; 5 s in all, of which seven would take 4.48

    assert _duration(history, 64, 1) == pytest.approx(5.0)
    assert _duration(history, 640, 8) == pytest.approx(0.52 + 7 * 2 * 6.4)
    assert _duration(history, 640, 8, 1e6) == pytest.approx(0.52 + 3.0)
    assert history.times.probe_duration.most_seconds == 3 * 5.0


def test_loops_of_the_users_own_and_what_is_more_than_speed_are_expected_to_run_full_cycles():
    own = History(study_request(facts=facts(owns_loop=True)), [BASELINE])
    energy = History(study_request(goal=Goal(objective="memory", global_batch=64)), [BASELINE])

    assert _duration(own, 64, 8) == pytest.approx(0.52 + 7 * 8 * 0.64)
    assert _duration(energy, 64, 8) == pytest.approx(0.52 + 7 * 8 * 0.64)


def test_a_search_probe_of_a_long_cycle_is_expected_to_take_less_than_a_round():
    history = _history(BASELINE)
    accumulated = config(batch_size=64, gradient_accumulation_steps=8)

    round_seconds = history.times.expected_seconds(ProbeBudget(), accumulated)
    assert history.times.expected_seconds(ProbeBudget(), accumulated, in_search=True) < round_seconds
