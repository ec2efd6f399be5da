"""Who goes on in the race, how long it may take, and when it is over."""

import math

import pytest

from autotune.answer.choice import FEWEST_FINALISTS, claim_confidence
from autotune.answer.confirmation_end import is_decided, is_good_enough
from autotune.answer.confirmation_rounds import (
    MOST_FINALISTS,
    finalist_count,
    finalist_margin,
    finalists_left,
    probe_count,
    survivors,
)
from autotune.core.rounds import Rounds

ALIKE = dict.fromkeys(range(9), (0.0,))


@pytest.mark.parametrize(
    ("finalists", "running"), [(8, [8, 8, 8, 4, 4, 4, 2, 2]), (5, [5, 5, 5, 2, 2, 2, 2, 2]), (2, [2] * 8), (1, [1] * 8)]
)
def test_the_slower_half_stays_behind_after_rounds_three_and_six(finalists, running):
    assert [finalists_left(finalists, number) for number in range(8)] == running


def test_a_race_costs_what_its_rounds_do():
    assert probe_count(8, 8, 1) == 3 * 9 + 3 * 5 + 2 * 3
    assert probe_count(3, 2, 1) == 8


@pytest.mark.parametrize(
    ("affordable", "expected"),
    [
        (1000, MOST_FINALISTS),
        (48, MOST_FINALISTS),
        (47, 7),  # rather a finalist less than finalists who cannot be told apart
        (30, 4),
        (12, FEWEST_FINALISTS),
        (4, FEWEST_FINALISTS),  # what there is no time for overruns
        (-9, FEWEST_FINALISTS),
    ],
)
def test_the_time_decides_how_many_race(affordable, expected):
    assert finalist_count(20, 1, affordable) == expected


def test_no_more_race_than_there_are():
    assert finalist_count(2, 1, 1000) == 2


def test_without_repeats_a_probe_is_believed_to_three_per_cent():
    assert finalist_margin([]) == pytest.approx(1 - math.exp(-3 * math.sqrt(2) * 0.03))
    assert finalist_margin([100.0]) == finalist_margin([])


def test_a_machine_whose_repeats_differ_widens_the_screen_and_a_steady_one_narrows_it():
    assert finalist_margin([100.0, 80.0, 120.0, 90.0]) > 2 * finalist_margin([])
    assert finalist_margin([100.0] * 5) == pytest.approx(1 - math.exp(-3 * math.sqrt(2) * 0.03 / math.sqrt(2)))


def test_the_fastest_go_on_whatever_the_machine_did_between_rounds():
    rounds = Rounds([[100, 50, 80], [90, 45, 72], [130, 65, 104], [120, 60, 96]])

    assert survivors(rounds, range(4), 2, ALIKE) == [2, 3]


def test_one_bad_round_leaves_nobody_behind():
    rounds = Rounds([[100, 100, 100], [110, 40, 110], [95, 95, 95]])

    assert survivors(rounds, range(3), 1, ALIKE) == [1]


def test_beside_the_fastest_the_more_cautious_of_its_equals_goes_on():
    rounds = Rounds([[100.0] * 3, [99.5] * 3, [99.0] * 3, [90.0] * 3])
    cautions = {0: (4.0,), 1: (3.0,), 2: (1.0,), 3: (0.0,)}

    assert survivors(rounds, range(4), 2, cautions) == [0, 2]
    assert survivors(rounds, range(4), 2, cautions, tie=0.2) == [0, 3]


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([[100, 101], [200, 202]], False),  # two rounds agree by luck
        ([[100, 101, 100], [200, 202, 200]], True),
        ([[100, 100, 100], [101, 101, 101]], True),  # as good
        ([[100, 101, 99], [101, 99, 101]], False),
        ([[100, 140, 90], [200, 150, 210]], False),
        ([[100, 101, 100], [200, 202, 200], [201, 188, 212]], False),  # one rival is open
    ],
)
def test_it_is_over_when_every_rival_is_surely_slower_or_surely_as_good(rates, expected):
    assert is_decided(Rounds(rates), range(len(rates))) is expected


NEARLY_EQUAL = [[103, 101, 105, 103, 102, 104], [102, 104, 103, 103, 105, 101]]


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        (NEARLY_EQUAL, True),  # neither is surely as good as the other, and nothing is lost by taking either
        ([rates[:3] for rates in NEARLY_EQUAL], False),  # too soon
        ([rates[:4] for rates in NEARLY_EQUAL], True),
        # What the baseline scatters says nothing of the two: four rounds of a search of digits_cnn.
        ([[5150, 5190, 5090, 4850], [5300, 5250, 5250, 4990], [1560, 2530, 2000, 2370]], True),
        ([*NEARLY_EQUAL, [102, 101, 104, 103, 102, 105], [70, 71, 70, 69, 70, 70]], False),  # the halvings are not over
        ([*NEARLY_EQUAL, [70, 71, 70, 69, 70, 70]], True),  # the baseline is beaten for sure
        ([*NEARLY_EQUAL, [70, 120, 70, 125, 70, 110]], False),  # it is not
        ([*NEARLY_EQUAL, [104, 102, 105, 102, 103, 104]], True),  # it stays: it is as good
        ([[103, 80, 130, 103, 90, 125], [125, 104, 90, 80, 120, 95]], False),
    ],
)
def test_it_is_over_when_next_to_nothing_is_lost_by_the_choice(rates, expected):
    rounds = Rounds(rates)

    assert not is_decided(rounds, range(len(rates)))
    assert is_good_enough(rounds, range(len(rates)), len(rates) - 1 if len(rates) > 2 else None) is expected


def test_whoever_may_fall_behind_by_more_must_be_surely_slower_by_more():
    rounds = Rounds([[100.0] * 3, [97.0] * 3])

    assert is_decided(rounds, range(2))
    assert is_decided(rounds, range(2), tie=0.05)  # as good
    assert not is_decided(Rounds([[100.0] * 3, [97.0, 91.0, 97.0]]), range(2), tie=0.05)


def test_the_luckiest_of_many_needs_more_to_be_believed():
    assert claim_confidence(1) == claim_confidence(2) == 0.95
    assert claim_confidence(8) == pytest.approx(1 - 0.1 / 8)
