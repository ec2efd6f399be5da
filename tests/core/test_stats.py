import math
import random

import numpy as np
import pytest
from scipy.special import stdtrit

from autotune.core.rounds import Rounds
from autotune.core.stats import (
    MOST_PROBE_NOISE,
    PROBE_NOISE,
    clearly_slower,
    difference_by_chance,
    probe_noise,
    relative_half_width,
    student_quantile,
)


def test_too_few_blocks_give_no_interval():
    assert relative_half_width([1.0, 1.0, 1.0]) is None


def test_a_steady_run_has_no_width():
    assert relative_half_width([0.1] * 40) == pytest.approx(0.0, abs=1e-12)


def test_blocks_widen_the_interval_of_bursty_steps():
    bursts = ([0.1] * 4 + [1.0] * 4) * 8  # eight steps in a row belong together

    assert relative_half_width(bursts, block=4) > relative_half_width(bursts, block=8)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    chance = random.Random(0)
    widths = 0
    for _ in range(300):
        steps = [chance.gauss(1.0, 0.1) for _ in range(40)]
        mean, half = sum(steps) / 40, relative_half_width(steps)
        widths += abs(mean - 1.0) <= half * mean

    assert 0.90 <= widths / 300 <= 0.99


@pytest.mark.parametrize(
    ("rates", "slower"),
    [
        ([60.0], False),  # one block says nothing
        ([60.0, 65.0], True),
        ([60.0, 75.0], False),  # the first may have been a hiccup
        ([80.0, 80.0, 80.0], False),
        ([80.0, 80.0, 80.0, 80.0], True),
        ([60.0, 100.0, 60.0, 100.0], False),  # the same mean, and the spread to doubt it
        ([92.0] * 20, False),  # within what a machine drifts between two probes
        ([90.0] * 20, True),
        ([130.0] * 20, False),
    ],
)
def test_only_a_mean_that_no_noise_and_no_drift_explains_is_clearly_slower(rates, slower):
    assert clearly_slower(rates, 100.0) is slower


def test_two_rounds_of_two_tell_what_is_far_beyond_the_usual_noise():
    noisy = Rounds([[70.0, 65.5], [93.2, 82.5]])  # a probe takes so long that there was time for no more
    agreed = Rounds([[100.0, 100.0], [103.0, 103.1]])
    steady = Rounds([[100.0, 100.0, 100.0], [103.0, 103.1, 103.0]])

    estimate, low, high = noisy.ratio(1, 0)

    # Smyth's moderated t: (1 * s^2 + 1 * 0.05^2) / 2 with 2 degrees of freedom, t(2) = 4.302653
    apart = math.log(93.2 / 70.0) - math.log(82.5 / 65.5)
    half = 4.302653 * math.sqrt((apart**2 / 4 + 0.05**2) / 2)
    assert (estimate / low, high / estimate) == pytest.approx((math.exp(half), math.exp(half)), rel=1e-4)
    assert low > 1
    assert agreed.ratio(1, 0)[1] < 1  # two that agree may do so by luck
    assert steady.ratio(1, 0)[1] > 1.02  # three quiet rounds are not blurred by it


def test_rounds_are_known_no_better_than_their_windows_let_them():
    """As seen beside heavy other work: a knob that does nothing, 2.82 times as fast (1.91 to 4.16) in two rounds."""
    rates, agreed = [[599.47, 200.07], [239.06, 63.1]], [[100.0] * 3, [103.0, 103.1, 103.0], [104.0, 104.0, 103.9]]

    assert Rounds(rates).ratio(0, 1)[1] > 1.9
    assert Rounds(rates, window_noise=0.55).ratio(0, 1)[1] < 1
    assert Rounds(rates, window_noise=0.02).ratio(0, 1) == Rounds(rates).ratio(0, 1)  # steady windows say no more
    assert Rounds(agreed).ratio(1, 0)[1] > 1.02
    assert Rounds(agreed, window_noise=0.2).ratio(1, 0)[1] < 1  # three of three, whose own noise would tell alone


def test_two_that_never_met_are_compared_through_a_third():
    rounds = Rounds([[100.0, 101.0, None, None], [200.0, 201.0, 150.0, 151.0], [None, None, 300.0, 303.0]])

    estimate, low, high = rounds.ratio(2, 0)
    through = [rounds.ratio(2, 1), rounds.ratio(1, 0)]

    assert estimate == pytest.approx(math.prod(one for one, _, _ in through)) == pytest.approx(4.0, rel=0.02)
    widths = [math.log(one / below) for one, below, _ in through]
    assert math.log(estimate / low) == pytest.approx(math.hypot(*widths)) == pytest.approx(math.log(high / estimate))
    assert rounds.typical_rate(2) == pytest.approx(rounds.typical_rate(1) * rounds.ratio(2, 1)[0])


def test_luck_does_not_add_up_over_a_third():
    """As seen: one slow round of the leader made its equal 2.59 times as fast as the baseline, instead of 2.23."""
    missed = [None, None]
    rounds = Rounds([[371.0, 342.0], [768.0, 821.0, 513.0, 678.0], [*missed, 682.0, 686.0], [*missed, 658.0, 665.0]])

    assert rounds.ratio(2, 1)[1] < 1 < rounds.ratio(2, 1)[0]
    assert rounds.ratio(2, 0)[0] == pytest.approx(rounds.ratio(1, 0)[0]) == pytest.approx(2.23, abs=0.005)
    assert rounds.ratio(0, 2)[0] == pytest.approx(1 / rounds.ratio(2, 0)[0])


def test_drift_between_rounds_does_not_blur_a_ratio():
    rounds = Rounds([[100.0, 50.0, 80.0], [200.0, 100.0, 160.0]])  # the machine slowed down, the ratio stayed

    estimate, low, high = rounds.ratio(1, 0)

    assert (estimate, low, high) == pytest.approx((2.0, 2.0, 2.0))


def test_of_one_round_the_usual_noise_is_assumed_and_only_a_large_factor_counts():
    estimate, low, high = Rounds([[100.0], [200.0]]).ratio(1, 0)

    assert estimate == pytest.approx(2.0)
    assert (low, high) == pytest.approx((2 / 2.455, 2 * 2.455), rel=1e-3)  # 12.7 times 5 % of each of two
    assert Rounds([[100.0], [300.0]]).ratio(1, 0)[1] > 1


def test_noise_widens_the_interval_around_the_ratio():
    rounds = Rounds([[100.0, 104.0], [200.0, 190.0], [150.0, 150.0]])

    estimate, low, high = rounds.ratio(1, 0)

    assert low < estimate < high
    assert rounds.noise > 0


def test_the_ratio_interval_covers_the_truth_about_as_often_as_it_says():
    chance = random.Random(1)
    hits = 0
    for _ in range(400):
        drift = [chance.gauss(0, 0.2) for _ in range(3)]
        rates = [[math.exp(base + d + chance.gauss(0, 0.05)) for d in drift] for base in (0.0, 0.5, 0.1, 0.3)]
        _, low, high = Rounds(rates).ratio(1, 0)
        hits += low <= math.exp(0.5) <= high

    assert 0.91 <= hits / 400 <= 0.985


def test_who_left_early_is_compared_over_the_rounds_that_both_ran():
    rounds = Rounds([[100.0, 50.0, 80.0, 20.0], [200.0, 100.0], [None, None, 160.0, 40.0]])

    assert rounds.ratio(1, 0)[0] == pytest.approx(2.0)
    assert rounds.ratio(2, 0)[0] == pytest.approx(2.0)
    assert [rounds.count(1, 0), rounds.count(2, 0), rounds.count(1, 2)] == [2, 2, 0]


def test_rates_are_those_of_all_rounds_whoever_ran_only_the_slow_ones():
    rates = [[None, None, 100.0, 100.0], [100.0, 100.0, 50.0, 50.0], [None, None, 25.0, 25.0]]

    overall = [Rounds(rates).typical_rate(one) for one in range(3)]
    slow = [Rounds(rates, reference=0).typical_rate(one) for one in range(3)]

    assert overall == pytest.approx([2 * 5000**0.5, 5000**0.5, 5000**0.5 / 2])
    assert slow == pytest.approx([100.0, 50.0, 25.0])


def test_what_is_probably_faster_than_the_third_has_at_worst_what_that_has():
    missed = [None] * 3
    winner, baseline = [1500.0, 2100.0, 2020.0, 2090.0, 2190.0], [1230.0, 1290.0, 1410.0]
    without_a_change, others = [2770.0, 2540.0], ([1490.0, 1700.0], [1490.0, 1180.0])
    rounds = Rounds([winner, baseline, *([*missed, *rates] for rates in (without_a_change, *others))], 1)

    assert rounds.ratio(2, 0)[0] > 1.2 > 1 > rounds.ratio(2, 0)[1]  # 24 % faster in two rounds, not surely
    assert rounds.ratio(2, 1)[0] == pytest.approx(rounds.ratio(0, 1)[0])
    assert rounds.ratio(2, 1)[1] == pytest.approx(rounds.ratio(0, 1)[1], rel=0.02)
    assert rounds.ratio(2, 1)[2] > rounds.ratio(0, 1)[2]


def test_two_that_never_met_are_not_told_apart_where_nobody_met_both():
    estimate, low, high = Rounds([[100.0, 101.0, *[None] * 3], [*[None] * 3, 300.0, 303.0]]).ratio(1, 0)

    assert estimate == pytest.approx(3.0)
    assert (low, high) == (0.0, math.inf)


def test_one_bad_round_of_eight_hardly_moves_a_ratio():
    steady = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.0]
    spoiled = [200.0, 202.0, 199.0, 201.0, 70.0, 200.0, 199.0, 201.0]

    estimate, low, high = Rounds([steady, spoiled]).ratio(1, 0)

    assert estimate == pytest.approx(2.0, rel=0.01)  # the mean alone would lie at 1.75
    assert high < 2.05  # by the standard deviation 2.7
    assert low < 1.99


@pytest.mark.parametrize(("count", "outliers"), [(6, 0.0), (8, 0.0), (8, 0.1), (12, 0.1)])
def test_the_interval_from_the_pairs_own_ratios_covers_the_truth_even_with_bad_rounds(count, outliers):
    chance = random.Random(2)
    hits = 0
    for _ in range(400):
        drift = [chance.gauss(0, 0.2) for _ in range(count)]
        rates = [
            [math.exp(base + d + chance.gauss(0, 0.05) - 0.4 * (chance.random() < outliers)) for d in drift]
            for base in (0.0, 0.5)
        ]
        _, low, high = Rounds(rates).ratio(1, 0)
        hits += low <= math.exp(0.5) <= high

    assert 0.92 <= hits / 400 <= 0.99


def test_more_confidence_is_a_wider_interval():
    rates = [[100.0 + (7 * n) % 5 for n in range(8)], [200.0 - (3 * n) % 7 for n in range(8)]]

    _, low, high = Rounds(rates).ratio(1, 0)
    _, lower, higher = Rounds(rates).ratio(1, 0, confidence=0.99)

    assert lower < low < high < higher


@pytest.mark.parametrize("gap", [0.0, 0.03])
def test_the_expected_slowdown_is_that_of_many_choices(gap):
    """With much noise and many rounds, against drawn truths: normal, given what was measured."""
    chance = random.Random(0)
    errors = [chance.gauss(0, 0.2) for _ in range(400)]
    rounds = Rounds([[100 * math.exp(gap + e) for e in errors], [100 * math.exp(chance.gauss(0, 0.2)) for _ in errors]])
    measured = math.log(rounds.ratio(0, 1)[0])
    spread = rounds.noise * math.sqrt(2 / 400)

    drawn = [max(0.0, chance.gauss(-measured, spread) + math.log(1 - 0.005)) for _ in range(200_000)]

    assert rounds.expected_slowdown(0, 1, 0.005) == pytest.approx(sum(drawn) / len(drawn), rel=0.03)


def test_of_two_that_never_met_anything_may_be_lost():
    assert Rounds([[100.0, None, None], [None, None, 100.0]]).expected_slowdown(0, 1) == math.inf


def test_two_rounds_in_a_row_that_others_spoiled_for_another_one_each_are_compared_as_one():
    """As seen: of three rounds of 2.0 times as fast each two lost a probe, and one left said 1.92 (0.78 to 4.70)."""
    rounds = Rounds([[None, 160.1, 164.3], [83.2, None, 85.8]])

    estimate, low, high = rounds.ratio(0, 1)

    assert rounds.count(0, 1) == 2
    assert 1.5 < low < estimate < high < 2.5
    assert estimate == pytest.approx(1.92, abs=0.01)


def test_rounds_that_share_a_configuration_or_lie_apart_stay_what_they_are():
    shared = Rounds([[None, 160.0, 164.0], [83.0, None, 86.0], [90.0, 91.0, 92.0]])
    apart = Rounds([[None, None, 160.0, 164.0], [83.0, None, None, 86.0]])
    once = Rounds([[None, 160.0, None], [83.0, None, 86.0]])

    assert shared.count(0, 1) == apart.count(0, 1) == once.count(0, 1) == 1


def test_a_slow_outlier_is_told_by_the_round_in_which_it_ran():
    rounds = Rounds([[None, 100.0, 101.0, 60.0, 100.5], [200.0, None, 201.0, 200.5, 200.2]])

    assert rounds.slow_outliers() == [(0, 3)]


@pytest.mark.parametrize("probability", [0.5, 0.8, 0.95, 0.975, 0.995, 0.99999])
def test_the_quantiles_of_students_t_are_those_of_scipy(probability):
    ours = [student_quantile(freedom, probability) for freedom in (*range(1, 50), 1000)]
    theirs = [float(stdtrit(freedom, probability)) for freedom in (*range(1, 50), 1000)]

    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("block", [1, 3])
def test_a_window_of_any_length_has_the_interval_of_students_t(block):
    for length in range(4 * block, 100):
        seconds = np.random.default_rng(length).normal(1.0, 0.1, length)
        size = max(block, length // 20)
        count = length // size
        means = seconds[: count * size].reshape(count, size).mean(axis=1)

        expected = stdtrit(count - 1, 0.975) * means.std(ddof=1) / math.sqrt(count) / means.mean()
        assert relative_half_width(list(seconds), block) == pytest.approx(expected)


def test_the_noise_of_a_probe_is_pooled_over_configurations_and_drawn_towards_the_usual_one():
    usual = pytest.approx(PROBE_NOISE)

    assert probe_noise([]) == probe_noise([[100.0], [50.0], []]) == usual  # no repeats
    assert probe_noise([[100.0, 90.0, 110.0], [10.0, 9.0, 11.0]]) == pytest.approx(
        probe_noise([[100.0, 90.0, 110.0]] * 2)
    )
    chance = random.Random(0)
    many = [[chance.lognormvariate(0.0, 0.12) for _ in range(4)] for _ in range(200)]
    assert probe_noise(many) == pytest.approx(0.12, rel=0.1)
    assert PROBE_NOISE < probe_noise([[100.0, 80.0]]) < 0.1


def test_so_many_probes_of_equals_differ_by_more_in_one_case_of_twenty():
    chance, noise = random.Random(0), 0.1

    def mean(count):
        return sum(chance.gauss(0.0, noise) for _ in range(count)) / count

    most = difference_by_chance(noise, 2, 3)
    lower = sum(mean(2) - mean(3) < math.log(1 - most) for _ in range(20000))

    assert lower / 20000 == pytest.approx(0.05, abs=0.005)
    assert difference_by_chance(0.01) == MOST_PROBE_NOISE
    assert difference_by_chance(5.0) < 1
