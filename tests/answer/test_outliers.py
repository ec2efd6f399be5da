"""Rounds that something slowed that nobody saw: which they are, and what becomes of them."""

import random

import pytest

from autotune.answer.outliers import without_outliers
from autotune.answer.resumed_confirmation import ResumedConfirmation
from autotune.core.results import Trial
from autotune.core.rounds import Rounds
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import Judged, valid_trials
from tests.worlds import config, good, measured

ONE, TWO, BASE = (config(batch_size=size) for size in (8, 16, 64))


def _racer(where, *rates):
    trials = tuple(
        Trial(number=10 * number + where.batch_size, purpose="confirm", config=where, result=measured(rate))
        for number, rate in enumerate(rates)
    )
    return ConfigSummary(config=where, trials=trials, verdicts=tuple(map(good, rates)), rounds=tuple(range(len(rates))))


def _again(rate):
    def again(trial):
        repeat = Trial(number=99, purpose="confirm", config=trial.config, result=measured(rate), repeats=trial.number)
        return Judged(repeat, good(rate))

    return again


def test_one_slow_round_is_found_and_drift_of_all_and_fast_rounds_are_not():
    assert Rounds([[100, 101, 60, 99], [200, 198, 201, 202]]).slow_outliers() == [(0, 2)]
    assert Rounds([[100, 101, 60, 99], [200, 198, 120, 202], [50, 51, 31, 50]]).slow_outliers() == []
    assert Rounds([[100, 101, 160, 99], [200, 198, 201, 202], [50, 51, 50, 50]]).slow_outliers() == []


def test_of_two_rounds_the_slower_one_is_asked_again_where_others_show_that_the_machine_did_not_move():
    assert Rounds([[60, 100], [200, 202], [150, 149]]).slow_outliers() == [(0, 0)]
    assert Rounds([[92, 100], [200, 202], [150, 149]]).slow_outliers() == []  # as far as two honest probes differ


def test_two_rounds_of_two_configurations_do_not_tell_which_one_was_slowed():
    assert Rounds([[60, 100], [200, 202]]).slow_outliers() == []


@pytest.mark.parametrize("logs", [[], [[100.0]], [[None, 100.0], [90.0, None]]])
def test_where_nothing_can_be_compared_nothing_is_odd(logs):
    assert Rounds(logs).slow_outliers() == []


def test_on_a_noisy_machine_honest_rounds_are_hardly_ever_odd():
    chance = random.Random(3)
    found = [
        Rounds([[rate * chance.lognormvariate(0, 0.06) for _ in range(6)] for rate in (100, 120, 90, 200)])
        for _ in range(200)
    ]

    assert sum(len(one.slow_outliers()) for one in found) <= 10  # of 4,800 probes


def test_the_repeat_counts_in_its_round():
    candidates = [_racer(BASE, 60, 100), _racer(ONE, 200, 202), _racer(TWO, 150, 149)]

    base, other, _ = without_outliers(candidates, _again(101))

    assert base.rates == pytest.approx([101, 100])
    assert (base.rounds, base.left_out) == ((0, 1), ())
    assert other.rates == pytest.approx([200, 202])


def test_what_is_as_slow_again_is_how_fast_the_configuration_is_at_times():
    (base, _) = candidates = without_outliers([_racer(BASE, 60, 100, 100), _racer(ONE, 200, 202, 201)], _again(60))

    assert base.rates == pytest.approx([60, 100, 100])
    assert without_outliers(candidates, _again(100)) == list(candidates)


def test_without_time_it_is_left_out_where_two_rounds_remain():
    three, two = ([_racer(BASE, *rates), _racer(ONE, *[200] * len(rates))] for rates in ((60, 100, 100), (60, 100)))

    base = without_outliers(three)[0]

    assert (base.rates, base.rounds) == (pytest.approx([100, 100]), (1, 2))
    assert [trial.number for trial in base.left_out] == [three[0].trials[0].number]
    assert without_outliers(two)[0].rates == pytest.approx([60, 100])


def test_a_repeat_that_counts_stands_in_its_round_when_the_race_is_resumed():
    def trial(number, where, rate=100.0, repeats=None):
        one = Trial(number=number, purpose="confirm", config=where, result=measured(rate), repeats=repeats)
        return Judged(one, good(rate))

    order = (ONE, BASE, BASE, ONE)
    judged = [trial(number, where) for number, where in enumerate(order, 1)]
    judged = [*judged, trial(5, ONE, repeats=1)]

    assert [one.number for one, _ in valid_trials(judged)] == [2, 3, 4, 5]
    resumed = ResumedConfirmation(judged, 0, BASE)
    assert [one.number for one, _ in resumed.round([ONE, BASE])] == [5, 2]
    assert [one.number for one, _ in resumed.round([BASE, ONE])] == [3, 4]
