"""How long computing alone and loading alone are timed, by times made by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from autotune.child.isolated import Computing, Loading, in_turn
from autotune.core.requests import ProbeBudget
from autotune.core.results import IsolatedTiming
from autotune.targets.base import Step
from tests.worlds import GIB, measured

BUDGET = ProbeBudget(max_compute_seconds=0.5, max_loader_seconds=1.0, max_seconds=4.0)


def computed(seconds: float) -> tuple[float, ...]:
    computing = Computing(BUDGET)
    while not computing.step(seconds, 32):
        pass
    assert computing.result is not None
    return computing.result.seconds


def loaded(seconds: Iterable[float], workers: int, ready: int = 0) -> IsolatedTiming:
    loading = Loading(BUDGET, workers, ready)
    for batch in seconds:
        if loading.batch(batch, 10):
            break
    assert loading.result is not None
    return loading.result


@pytest.mark.parametrize(("seconds", "steps"), [(0.04, 13), (0.3, 3), (0.6, 2), (1.5, 1), (30.0, 1)])
def test_computing_takes_half_a_second_or_three_steps_but_not_of_long_ones(seconds: float, steps: int) -> None:
    assert computed(seconds) == (seconds,) * steps


@pytest.mark.parametrize(
    ("seconds", "workers", "turns"),
    [(0.2, 0, 3), (0.4, 0, 3), (2.0, 0, 1), (0.1, 2, 3), (0.3, 4, 1), (0.005, 4, 5), (1e-5, 0, 30)],
)
def test_loading_takes_whole_turns_of_the_workers(seconds: float, workers: int, turns: int) -> None:
    result = loaded(itertools.repeat(seconds), workers)

    assert result.seconds == pytest.approx((seconds * max(workers, 1),) * turns)
    assert result.samples == 10 * max(workers, 1)


def test_what_the_workers_held_ready_is_not_timed() -> None:
    bursts = [1e-6] * 8 + [0.1] * 100

    assert loaded(bursts, workers=2, ready=8).seconds == pytest.approx((0.2, 0.2, 0.2))


def test_what_is_done_in_turn_is_told_by_the_waits_of_the_window() -> None:
    steps = [
        Step(loss=None, samples=32, tokens=None, micro_batches=2, loader_wait_seconds=wait, skipped=0)
        for wait in (0.1, 0.2)
    ]

    computing, loading = in_turn(steps, (0.5, 0.6))

    assert computing.seconds == pytest.approx((0.4, 0.4))
    assert loading.seconds == pytest.approx((0.1, 0.2))
    assert (computing.samples, loading.samples) == (32, 32)


def test_a_loader_that_was_started_again_holds_nothing_ready() -> None:
    loading = Loading(BUDGET, 2, 1000)
    loading.epoch()

    ended = [loading.batch(0.5, 10) for _ in range(2)]

    assert ended == [False, True]


def test_batches_of_different_sizes_are_told_by_their_mean() -> None:
    loading = Loading(BUDGET, 2, 0)

    for samples in (10, 20, 30, 40, 50, 60):
        loading.batch(0.1, samples)

    assert loading.result == IsolatedTiming(seconds=(0.2, 0.2, 0.2), samples=70)
    assert loading.result.samples_per_second == pytest.approx(350)


@pytest.mark.parametrize(
    ("reserved", "alone", "share"),
    [
        (GIB, 100.0, 0.0),  # as fast as on one batch: what the host waited for, the device had not missed yet
        (GIB, 125.0, 0.2),
        (GIB, 1000.0, 0.6),  # no more than was waited for
        (GIB, 95.0, 0.0),  # noise
        (None, 125.0, 0.6),  # on a CPU waiting is waiting
    ],
)
def test_an_accelerator_starves_for_no_more_than_steps_take_beyond_computing(
    reserved: int | None, alone: float, share: float
) -> None:
    measurement = measured(rate=100.0, wait=0.6).measurement
    assert measurement is not None
    memory = replace(measurement.memory, reserved_bytes=reserved)

    timed = replace(measurement, memory=memory, compute_only=IsolatedTiming(seconds=(8 / alone,) * 4, samples=8))

    assert timed.data_wait_share == pytest.approx(share)
