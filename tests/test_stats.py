import math
import random

import pytest

from autotune.stats import Rounds, relative_half_width


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


def test_drift_between_rounds_does_not_blur_a_ratio():
    rounds = Rounds([[100.0, 50.0, 80.0], [200.0, 100.0, 160.0]])  # the machine slowed down, the ratio stayed

    estimate, low, high = rounds.ratio(1, 0)

    assert (estimate, low, high) == pytest.approx((2.0, 2.0, 2.0))


def test_one_round_says_nothing_about_noise():
    estimate, low, high = Rounds([[100.0], [200.0]]).ratio(1, 0)

    assert estimate == pytest.approx(2.0)
    assert (low, high) == (0.0, math.inf)


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
