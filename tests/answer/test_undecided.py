"""When an answer is open, and what it would take."""

import dataclasses

import pytest
from msgspec.structs import replace

from autotune.answer.recommend import StudyFacts, recommend
from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.interference_readings import HostInterference
from autotune.core.notices import notice
from autotune.report.phrases import headline
from autotune.study.recommendation import Recommendation
from autotune.tuning.answering import recommendation_of
from tests.answer.test_recommend import BASE, FAST, FREE, _candidate, _recommended
from tests.worlds import config, context, earlier, study_request

NOISY = (100, 130, 90), (150, 140, 160)
HUNG = {"measured": 5, "failed": 3}  # of those that were tried besides the baseline, three did not run


def test_what_may_be_much_faster_is_open_and_the_baseline_is_kept():
    found = _recommended(_candidate(BASE, *NOISY[0]), _candidate(FAST, *NOISY[1]))

    assert found.params == BASE.values
    assert found.undecided.config == FAST
    assert found.undecided.gain_low < 1 < found.undecided.gain < found.undecided.gain_high
    assert found.undecided.rounds == 3 < found.undecided.rounds_needed
    assert found.undecided.minutes_needed >= 1
    assert codec.decode(codec.encode(found), Recommendation) == found


def test_more_rounds_than_a_race_runs_are_not_advised():
    few = _recommended(_candidate(BASE, *[100] * 4), _candidate(FAST, 104, 116, 92, 106)).undecided

    assert few.rounds_needed is None  # 25
    assert few.minutes_needed is None


def test_what_is_surely_not_worth_a_change_is_decided():
    found = _recommended(_candidate(BASE, 100, 101, 100, 99), _candidate(FAST, 101, 101, 99, 100))

    assert (found.params, found.undecided) == (BASE.values, None)


def test_rounds_that_could_not_have_told_a_gain_of_a_tenth_are_no_evidence_against_it():
    found = _recommended(_candidate(BASE, 100, 130, 80), _candidate(FAST, 99, 100, 103))

    assert found.params == BASE.values
    assert found.undecided.gain_high > 1.1


def _beside_others(candidate, *shares, threads=None, own=None):
    """The same candidate, whose rounds waited for a core for these shares of their time, and all their threads so."""

    def waited(trial, share):
        shared = HostInterference(
            run_queue_wait_share=share, foreign_cores=1.0, threads_wait_share=threads, own_cores=own
        )
        return replace(
            trial, result=replace(trial.result, measurement=replace(trial.result.measurement, interference=shared))
        )

    return dataclasses.replace(candidate, trials=tuple(map(waited, candidate.trials, shares)))


def test_what_beats_a_baseline_that_others_kept_from_the_cores_is_open_however_much_it_gains():
    """One thread was ten times as fast as two that wait for each other, beside a load on one core of two."""
    base, fast = _candidate(BASE, 100, 90, 110), _candidate(FAST, 1000, 1010, 990)

    found = _recommended(_beside_others(base, 0.45, 0.4, 0.5), fast)

    assert (found.params, found.undecided.config) == (BASE.values, FAST)
    assert found.undecided.rounds_needed is None
    told = headline(found)
    assert "measured 10.0× as fast (8.36 to 12.0) while other work slowed the baseline: your baseline is kept" in told
    assert [one.reason.code for one in found.runners_up] == [Code.FASTER_BESIDE_OTHERS]
    assert codec.decode(codec.encode(found), Recommendation) == found


def test_a_gain_that_is_more_than_others_can_have_cost_the_baseline_is_proven_all_the_same():
    """A baseline that sleeps in each step, and waits a tenth of its time: others did not make it ten times slower."""
    base = _beside_others(_candidate(BASE, 100, 90, 110), 0.12, 0.11, 0.12, threads=0.12)
    fast = _beside_others(_candidate(FAST, 1000, 1010, 990), 0.5, 0.5, 0.5, threads=0.5)

    found = _recommended(base, fast)

    assert (found.params, found.undecided) == (FAST.values, None)
    codes = [warning.code for warning in found.warnings]
    assert Code.LONE_RATE_INTERFERENCE in codes  # the rate is too low, and which one is faster is certain
    assert Code.CONFIRMATION_INTERFERENCE not in codes


@pytest.mark.parametrize(("own", "is_open"), [(0.08, False), (0.86, True), (1.9, True), (None, True)])
def test_others_do_not_slow_what_sleeps(own, is_open):
    """Twice as fast with loader workers, where the baseline reads from a disk most of the time."""
    base = _beside_others(_candidate(BASE, 100, 99, 101), 0.14, 0.14, 0.14, threads=0.16, own=own)

    found = _recommended(base, _candidate(FAST, 210, 200, 205))

    assert (found.undecided is not None) is is_open
    assert found.params == (BASE if is_open else FAST).values


@pytest.mark.parametrize(
    ("threads", "gain"),
    [
        (0.75, 10),  # 4 times slower by the waits of its threads, and up to 3 times by shared caches and hyperthreads
        (1.2, 10),  # two threads that wait for each other: that explains any loss
        (0.12, 3),
    ],
)
def test_a_gain_that_others_may_explain_is_open(threads, gain):
    base = _beside_others(_candidate(BASE, 100, 101, 102), 0.5, 0.5, 0.5, threads=threads)
    fast = _candidate(FAST, 100 * gain, 101 * gain, 102 * gain)

    found = _recommended(base, fast)

    assert (found.params, found.undecided.config) == (BASE.values, FAST)
    assert found.undecided.beside_others


def test_which_of_two_that_others_slowed_is_faster_is_not_certain_whatever_both_gain():
    base = _beside_others(_candidate(BASE, 100, 90, 110), 0.12, 0.11, 0.12, threads=0.12)
    some, other = (
        _beside_others(_candidate(one, 1000 + more, 1010 + more, 990 + more), 0.5, 0.5, 0.5, threads=0.5)
        for one, more in ((FAST, 200), (config(batch_size=64), 0))
    )

    found = _recommended(base, some, other)

    assert found.params != BASE.values
    assert Code.CONFIRMATION_INTERFERENCE in [warning.code for warning in found.warnings]


@pytest.mark.parametrize("shares", [(0.05, 0.06, 0.05), (0.45, 0.0, 0.0)])
def test_what_hardly_waited_or_once_is_compared_with_all_the_same(shares):
    base, fast = _candidate(BASE, 100, 101, 102), _candidate(FAST, 200, 202, 204)

    assert _recommended(_beside_others(base, *shares), fast).params == FAST.values


def test_what_was_measured_beside_others_is_a_claim_against_a_baseline_that_was_not():
    base, fast = _candidate(BASE, 100, 101), _candidate(FAST, 200, 202)

    assert _recommended(base, _beside_others(fast, 0.5, 0.5)).params == FAST.values


def test_what_is_measurably_faster_is_decided():
    assert _recommended(_candidate(BASE, 100, 101), _candidate(FAST, 200, 202)).undecided is None


@pytest.mark.parametrize(
    ("rates", "taken"),
    [
        ((106.0, 118.0, 104.0), False),  # 6 % faster, and perhaps 10 % slower
        ((108.0, 113.0, 105.5), True),  # 8 % faster, and at the worst 1 % slower
        ((101.5, 107.0, 101.0), False),  # 2 %: too little to be taken unproven
    ],
)
def test_what_is_open_is_taken_only_if_it_promises_much_and_can_cost_next_to_nothing(rates, taken):
    found = _recommended(_candidate(BASE, 100, 100, 100), _candidate(FAST, *rates))

    assert (found.params == FAST.values) is taken
    assert found.undecided is not None
    assert found.undecided.gain_low <= 1


def test_a_single_round_leaves_it_open():
    assert _recommended(_candidate(BASE, 100), _candidate(FAST, 200)).undecided.config == FAST


@pytest.mark.parametrize(("seen", "is_taken"), [(150.0, False), (400.0, True)])
def test_single_probes_decide_only_what_is_far_beyond_their_usual_noise(seen, is_taken):
    found = _recommended(_candidate(BASE, 100), _candidate(FAST, seen))

    assert (found.params == FAST.values) is is_taken
    assert (found.undecided is None) is is_taken


def test_where_too_few_were_tried_to_say_much_the_headline_says_so():
    candidates = [_candidate(BASE, 100, 101, 100), _candidate(FAST, 90, 91, 90)]
    known = (notice(Code.SAMPLED, total=345, **one) for one in ({"measured": 2}, {"measured": 5}, HUNG))
    few, more, hung = (
        recommend(candidates, study_request(), StudyFacts(study="x", probes=9, seconds=1.0, certificate=one))
        for one in known
    )

    said = "keep your baseline for now: only 1 of 344 other configurations ran, and no configuration was"
    assert headline(few).startswith(said)
    assert headline(hung).startswith(said)
    assert headline(more).startswith("keep your baseline: no configuration was")


def test_while_it_is_open_nobody_says_that_more_workers_gained_nothing():
    many = config(batch_size=64, num_workers=4)
    confirmed = [_candidate(BASE, 100, 130, 90, wait=0.6), _candidate(many, 150, 140, 160, wait=0.4)]

    found = recommend(confirmed, study_request(), StudyFacts(study="x", probes=9, seconds=1.0, probed={BASE, many}))

    assert (found.params, found.undecided.config) == (BASE.values, many)
    (said,) = (one for one in found.warnings if one.code is Code.LOADER_BOUND_WORKERS_OPEN)
    assert said.text.endswith("up to 4, were tried without a clear result. Search longer, or make the samples cheaper.")


@pytest.mark.parametrize(("rates", "is_open"), [((99, 130, 80), True), ((101, 102, 100), False)])
def test_a_larger_global_batch_that_may_gain_a_tenth_is_open_though_the_knee_is_the_baseline_s(rates, is_open):
    larger = _candidate(config(batch_size=128), *rates)

    found = _recommended(_candidate(BASE, *((100, 105, 95) if is_open else (100, 101, 100))), larger, request=FREE)

    assert found.params == BASE.values
    assert (found.undecided is not None) is is_open


def test_an_open_answer_asks_for_no_less_than_the_search_has_asked_for(tmp_path):
    search = context(tmp_path)
    confirmed = [_candidate(BASE, *NOISY[0]), _candidate(FAST, *NOISY[1])]

    answer = recommendation_of(search, earlier("nothing is known"), confirmed)
    search = dataclasses.replace(search, advised_minutes=1000 + answer.undecided.minutes_needed)
    advised = recommendation_of(search, earlier("nothing is known"), confirmed)

    assert advised.undecided.minutes_needed == search.advised_minutes
    assert advised.undecided.rounds_needed == answer.undecided.rounds_needed
