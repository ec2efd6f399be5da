"""A slope of memory is told from its noise."""

import random

import pytest

from autotune.core.memory_growth import FEWEST_READINGS, LEAST_GROWTH_BYTES, memory_growth

MIB = 2**20
LEAK = 1_250_000  # bytes a step: docs/notes/memory.md 3


def _track(count, step_bytes, *, stride=1, noise=0, seed=0):
    chance = random.Random(seed)
    return tuple(
        (n * stride, 300 * MIB + n * stride * step_bytes + chance.randint(-noise, noise)) for n in range(count)
    )


@pytest.mark.parametrize("stride", [1, 8])
def test_a_leak_is_told_in_bytes_per_step_however_the_readings_are_thinned(stride):
    assert memory_growth(_track(40, LEAK, stride=stride)) == pytest.approx(LEAK)


def test_a_leak_under_noise_is_told_about_right():
    assert memory_growth(_track(60, LEAK, noise=LEAK // 3)) == pytest.approx(LEAK, rel=0.05)


def test_a_leak_is_told_though_most_steps_find_memory_that_was_given_back():
    track = tuple((n, 300 * MIB + (n // 4) * 4 * LEAK) for n in range(60))

    assert memory_growth(track) == pytest.approx(LEAK, rel=0.1)


def test_one_jump_of_the_allocator_does_not_move_the_slope():
    track = [(n, held + (500 * MIB if n >= 30 else 0)) for n, held in _track(40, LEAK)]

    assert memory_growth(track) == pytest.approx(LEAK, rel=0.3)


@pytest.mark.parametrize(
    "track",
    [
        (),
        _track(FEWEST_READINGS - 1, LEAK),
        _track(60, 0),
        _track(60, 9_000),  # a clean run: docs/notes/memory.md 3
        _track(60, LEAST_GROWTH_BYTES),
        _track(60, 0, noise=20 * MIB),  # batches of differing lengths
        _track(60, -LEAK),
        tuple((n, 300 * MIB + 100 * MIB * (n > 30)) for n in range(60)),
        tuple((n, 300 * MIB + 30 * MIB * ((n > 10) + (n > 25) + (n > 40))) for n in range(60)),
    ],
    ids=["none", "few", "flat", "clean", "slight", "noisy", "shrinking", "jump", "jumps"],
)
def test_what_is_no_steady_growth_is_none(track):
    assert memory_growth(track) == 0.0
