"""Batches in order and as they are ready, in numbers that can be checked by hand; and what only accelerators have."""

import pytest
import torch

from autotune.profile.measuring.calls import CALLS, SELECTIONS
from autotune.profile.measuring.loader_order import step_seconds


def test_batches_that_are_alike_come_as_fast_in_order_as_otherwise():
    in_order, ready = (step_seconds([1.0] * 100, 2, 0.1, in_order=order) for order in (True, False))

    assert in_order == pytest.approx(0.5, rel=0.05)
    assert ready == pytest.approx(in_order, rel=0.02)


def test_a_slow_batch_holds_up_those_that_are_ready_only_in_order():
    batches = [20.0 if number % 20 == 0 else 1.0 for number in range(400)]

    in_order, ready = (step_seconds(batches, 4, 0.5, in_order=order) for order in (True, False))

    assert in_order > 1.2 * ready
    assert ready >= max(0.5, sum(batches) / 4 / len(batches))  # no faster than its workers, nor than computing


def test_where_computing_takes_longer_order_costs_nothing():
    assert step_seconds([1.0] * 50, 4, 3.0, in_order=True) == pytest.approx(3.0, rel=0.02)


def test_more_prefetched_batches_bridge_a_slow_one():
    batches = [6.0 if number % 20 == 0 else 0.5 for number in range(400)]

    short, long = (step_seconds(batches, 4, 1.0, in_order=True, prefetch=count) for count in (1, 8))

    assert long < short


def test_locking_memory_in_a_step_is_watched_on_accelerators_alone():
    pinning = [one for one in SELECTIONS if one[2] == "pinning"]

    assert [(owner, name) for owner, name, _, _ in pinning] == [(torch.Tensor, "pin_memory")]
    assert not [one for one in CALLS if one[2] == "pinning"]
