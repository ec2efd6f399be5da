"""When a window has seen enough, told by the lengths of its steps alone."""

import random

import pytest
from msgspec.structs import replace

from autotune.child.window_stopping import WindowStopping
from autotune.core.requests import ProbeBudget

BUDGET = ProbeBudget(min_steps=8, min_seconds=0.75, max_seconds=4.0)
SAMPLES = 10  # of every step


def _run(seconds, *, budget=BUDGET, micro_batches=1, **options):
    """Steps of `seconds(number)` until the window ends, and how many there were."""
    ending = WindowStopping(budget, **options)
    for number in range(100_000):
        if ending.step(seconds(number), SAMPLES, micro_batches):
            return ending, number + 1
    raise AssertionError("the window never ended")


def _noisy(spread, length=0.05, seed=0):
    chance = random.Random(seed)
    return lambda number: length * max(0.2, chance.gauss(1, spread))


def test_without_an_incumbent_nothing_is_cut_short():
    ending, steps = _run(lambda n: 0.1)

    assert (ending.cut_short, ending.noisy, steps) == (False, False, 8)


@pytest.mark.parametrize(("paused", "least", "most"), [(0.0, 4.0, 6.0), (0.05, 4.0, 6.0), (0.3, 0.75, 3.0)])
def test_pauses_that_outlast_the_longest_window_end_it(paused, least, most):
    ending, length, taken = WindowStopping(BUDGET), _noisy(3.0), 0.0
    for number in range(10_000):
        taken += (each := length(number))
        if ending.step(each, SAMPLES, 1, paused):
            break

    assert ending.noisy
    assert least <= taken <= most


def test_far_slower_than_the_incumbent_is_cut_after_two_blocks():
    ending, steps = _run(lambda n: 0.1, incumbent=SAMPLES / 0.1 / 0.6)

    assert ending.cut_short
    assert steps == 2


def test_clearly_slower_is_cut_after_four_blocks():
    ending, steps = _run(lambda n: 0.1, incumbent=SAMPLES / 0.1 / 0.85)

    assert ending.cut_short
    assert steps == 4


def test_a_block_is_a_tenth_of_a_second_however_short_the_steps():
    _, steps = _run(lambda n: 0.001, incumbent=SAMPLES / 0.001 / 0.5)

    assert 200 <= steps <= 202


def test_one_hiccup_does_not_cut_a_good_probe():
    ending, _ = _run(lambda n: 0.5 if n == 1 else 0.1, incumbent=SAMPLES / 0.1)

    assert not ending.cut_short


@pytest.mark.parametrize("factor", [0.95, 1.0, 1.05, 2.0])
def test_a_probe_within_what_machines_drift_is_not_cut(factor):
    ending, _ = _run(lambda n: 0.1, incumbent=SAMPLES / 0.1 / factor)

    assert not ending.cut_short


def test_noise_hides_no_hopeless_probe_and_condemns_no_equal_one():
    def cut(factor):
        runs = (_run(_noisy(0.15, seed=seed), incumbent=SAMPLES / 0.05 / factor)[0] for seed in range(100))
        return sum(ending.cut_short for ending in runs)

    assert cut(0.8) >= 95
    assert cut(1.0) <= 1


def test_a_cut_comes_after_whole_turns_of_the_workers():
    _, steps = _run(lambda n: 0.1, workers=3, incumbent=SAMPLES / 0.1 / 0.5)

    assert steps == 6


def test_micro_batches_count_towards_a_turn():
    _, steps = _run(lambda n: 0.1, workers=4, micro_batches=2, incumbent=SAMPLES / 0.1 / 0.5)

    assert steps == 4


def test_even_hopeless_steps_are_two_at_least():
    _, steps = _run(lambda n: 30.0, incumbent=1e9)

    assert steps == 2


def test_a_rough_interval_is_enough_where_the_incumbent_lies_outside_of_it():
    rough = _noisy(0.15)

    near, near_steps = _run(rough, incumbent=SAMPLES / 0.05)
    apart, apart_steps = _run(_noisy(0.15), incumbent=SAMPLES / 0.05 / 1.3)

    assert 0.03 < apart.half_width() <= 0.05
    assert near.half_width() <= 0.03
    assert apart_steps < near_steps
    assert not (near.noisy or apart.noisy)


def test_what_is_too_near_to_tell_goes_on_to_the_cap_and_is_called_noisy():
    ending, steps = _run(_noisy(0.6), incumbent=SAMPLES / 0.05)

    assert ending.noisy
    assert steps == pytest.approx(4.0 / 0.05, rel=0.2)


@pytest.mark.parametrize(("length", "steps"), [(1.4, 4), (1.9, 4), (2.1, 2), (30.0, 2)])
def test_more_steps_than_two_are_asked_of_a_window_that_they_make_no_longer_than_twice_the_longest(length, steps):
    _, taken = _run(lambda n: length, budget=replace(BUDGET, fewest_steps=4))

    assert taken == steps


@pytest.mark.parametrize(
    ("known_after", "shape", "paused", "steps"),
    [
        (0, {}, 0.0, 8),
        (12, {}, 0.0, 12),
        (1000, {}, 0.0, 16),
        (1000, {}, 0.5, 8),
        (1000, {"workers": 2}, 0.0, 8),
        (1000, {"workers": 1, "epoch": 12}, 0.0, 12),
    ],
    ids=["known", "soon known", "never known", "evaluations", "turns of workers", "whole epochs"],
)
def test_a_window_waits_for_another_full_collection_up_to_twice_as_long(known_after, shape, paused, steps):
    ending = WindowStopping(BUDGET, **shape)

    ran = next(n for n in range(1, 1000) if ending.step(0.1, SAMPLES, 1, paused, is_open=n < known_after))

    assert ran == steps


def test_a_window_waits_no_longer_than_the_longest_and_not_where_it_is_clearly_slower():
    longest, slower = WindowStopping(replace(BUDGET, max_seconds=1.2)), WindowStopping(BUDGET, incumbent=SAMPLES / 0.05)

    assert next(n for n in range(1, 1000) if longest.step(0.1, SAMPLES, 1, is_open=True)) == 12
    assert next(n for n in range(1, 1000) if slower.step(0.1, SAMPLES, 1, is_open=True)) == 2
