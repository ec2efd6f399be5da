"""Who is measured again, and in which order."""

import pytest

from autotune.results import Outcome, Trial
from autotune.tuning.confirm import LEADERS, Candidate, caution, leaders, run
from tests.worlds import bad, config, failed, good, measured

ONE, TWO, THREE, FOUR = (config(batch_size=size) for size in (8, 16, 32, 64))


def _judged(*pairs, purpose="search"):
    """Verdicts by configuration, as a search would have recorded them."""
    return [
        (Trial(number=number, purpose=purpose, config=where, result=measured()), verdict)
        for number, (where, verdict) in enumerate(pairs)
    ]


def _configs(candidates):
    return [candidate.config for candidate in candidates]


def test_the_fastest_are_measured_again_fastest_first():
    judged = _judged((ONE, good(10.0)), (TWO, good(30.0)), (THREE, good(20.0)), (FOUR, good(40.0)))

    assert _configs(leaders(judged, free=False)) == [FOUR, TWO, THREE]


def test_the_most_cautious_of_those_within_the_noise_is_measured_again():
    judged = _judged((FOUR, good(100.0)), (THREE, good(99.0)), (TWO, good(98.0)), (ONE, good(96.0)))

    chosen = leaders(judged, free=False)

    assert len(chosen) == LEADERS
    assert _configs(chosen) == [FOUR, THREE, ONE]


def test_what_is_slower_than_the_noise_is_not_chosen_for_its_caution():
    judged = _judged((FOUR, good(100.0)), (THREE, good(94.0)), (TWO, good(93.0)), (ONE, good(50.0)))

    assert _configs(leaders(judged, free=False)) == [FOUR, THREE, TWO]


def test_with_a_free_global_batch_the_smallest_one_is_the_most_cautious():
    much = config(batch_size=8, gradient_accumulation_steps=8)
    little = config(batch_size=16)

    assert caution(much, free=True) > caution(little, free=True)
    assert caution(much, free=False) < caution(little, free=False)


@pytest.mark.parametrize("last", [bad(), bad("unstable")])
def test_what_failed_when_it_was_last_probed_does_not_lead(last):
    judged = _judged((ONE, good(50.0)), (TWO, good(10.0)), (ONE, last))

    assert _configs(leaders(judged, free=False)) == [TWO]


def test_a_crash_that_a_fresh_process_did_not_repeat_does_not_count():
    crash = Trial(number=0, purpose="search", config=ONE, result=failed(Outcome.CRASHED))

    judged = [(crash, bad("crashed")), *_judged((ONE, good(50.0)), (TWO, good(10.0)))]

    assert _configs(leaders(judged, free=False)) == [ONE, TWO]


def test_a_failed_confirmation_of_an_earlier_run_counts():
    judged = _judged((ONE, good(50.0)), (TWO, good(10.0))) + _judged((ONE, bad()), purpose="confirm")

    assert _configs(leaders(judged, free=False)) == [TWO]


def test_confirmations_of_an_earlier_run_do_not_move_what_the_search_found():
    judged = _judged((ONE, good(50.0))) + _judged((ONE, good(70.0)), purpose="confirm")

    assert [candidate.found for candidate in leaders(judged, free=False)] == [50.0]


def test_without_a_feasible_probe_nobody_leads():
    assert leaders(_judged((ONE, bad())), free=False) == []


def _probe_with(log, verdict_of=lambda config, count: good(1.0)):
    def probe(where):
        log.append(where)
        verdict = verdict_of(where, log.count(where))
        return Trial(number=len(log), purpose="confirm", config=where, result=measured()), verdict

    return probe


def _candidates(*configs):
    return [Candidate(config=where, found=None) for where in configs]


def test_rounds_are_interleaved_and_every_other_one_reversed():
    log = []

    run(_candidates(ONE, TWO, THREE), 3, _probe_with(log))

    assert log == [ONE, TWO, THREE, THREE, TWO, ONE, ONE, TWO, THREE]


def test_a_candidate_that_fails_is_not_measured_again_and_says_why():
    log = []
    first, second = run(
        _candidates(ONE, TWO), 3, _probe_with(log, lambda where, count: bad("no") if where == ONE else good(2.0))
    )

    assert log == [ONE, TWO, TWO, TWO]
    assert (first.lost, second.lost) == ("no", "")
    assert second.rates == [2.0, 2.0, 2.0]


def test_one_failure_in_a_later_round_is_enough_to_lose():
    (candidate,) = run(
        _candidates(ONE), 3, _probe_with([], lambda where, count: bad("late") if count == 2 else good(2.0))
    )

    assert candidate.lost == "late"


def test_the_peak_is_the_largest_of_the_rounds():
    trials = [Trial(number=n, purpose="confirm", config=ONE, result=measured(peak=p)) for n, p in enumerate((5, 9, 7))]

    assert Candidate(config=ONE, found=None, trials=trials).peak_bytes == 9
