"""A slope of memory is told from its noise."""

import random

import pytest

from autotune.core.codes import Code
from autotune.core.memory_growth import FEWEST_READINGS, LEAST_GROWTH_BYTES, memory_growth
from autotune.core.notices import notice

MIB = 2**20
JUMPS = (8, 20, 30, 33, 45, 55)  # steps
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
        *(
            tuple((n, 300 * MIB + 4096 * n + 9 * MIB * (n > jump)) for n in range(60))
            for jump in (8, 20, 30, 33, 45, 55)
        ),
        tuple((n, 300 * MIB + int(40 * MIB * (1 - 0.9**n))) for n in range(60)),
    ],
    ids=[
        "none",
        "few",
        "flat",
        "clean",
        "slight",
        "noisy",
        "shrinking",
        "jump",
        "jumps",
        *(f"pages and a jump at {n}" for n in JUMPS),
        "settling",
    ],
)
def test_what_is_no_steady_growth_is_none(track):
    assert memory_growth(track) == 0.0


# Pages of 4 KiB above the first reading, of clean runs on a busy machine: an MLP, and two of a CNN.
CLEAN = {
    "mlp": [0, 0, 0, 0, 0, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 2235,
        2236, 2236, 2239, 2242, 2242, 2248, 2249, 2250, 2251, 2251, 2251, 2254, 2255, 2255, 2257, 2259, 2261, 2262,
        2265, 2266, 2266, 2267, 2268, 2268, 2269, 2269],
    "cnn": [0, 1, 1, 1, 2, 2, 3, 4, 4, 4, 4, 5, 5, 5, 6, 7, 8, 8, 8, 8, 8, 9, 11, 11, 11, 12, 12, 13, 14, 16, 16,
        2944, 2947, 2947, 2962, 2963, 2963, 2963, 2965, 2965, 2965, 2974, 2974, 2976, 2978, 2979, 2979, 2980, 2980,
        2980, 2981, 2989, 2989, 2991, 2991, 2991, 2992, 2993, 2993, 3003],
    "jumps": [0, 1, 1, 2, 3, 3, 3, 3, 4, 4, 5, 5, 66, 66, 67, 67, 68, 69, 69, 70, 2541, 2634, 2635, 2798, 2799, 2799,
        2800, 2801, 2803, 2803, 2804, 2804, 2805, 2842, 2842, 2844, 2844, 2845, 2845, 2847, 2847, 2848, 2848],
}  # fmt: skip


@pytest.mark.parametrize("pages", CLEAN.values(), ids=CLEAN.keys())
def test_what_a_clean_run_really_did_is_no_growth(pages):
    assert memory_growth(tuple((n, 300 * MIB + 4096 * count) for n, count in enumerate(pages))) == 0.0


def test_a_small_leak_is_told_in_a_unit_that_shows_it():
    told = notice(Code.MEMORY_GROWS, step_bytes=164_469, steps_left=151_586).text

    assert told.startswith("Memory grows by 161 KiB with every step: ")
