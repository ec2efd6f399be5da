"""Full collections are told apart from steps and spread over them. They are real, and how long they take is made up."""

import gc
import types

import pytest
import torch

from autotune.child import full_collections
from autotune.child.full_collections import FullCollections, without_collecting
from autotune.targets.base import Step

TOOK = 0.5


@pytest.fixture
def clock(monkeypatch):
    """`time.perf_counter`, by which a full collection takes half a second; without the collector's own ones."""
    hand = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(full_collections, "time", types.SimpleNamespace(perf_counter=lambda: hand.now))

    def takes(phase, info):
        if info["generation"] == 2 and phase == "stop":
            hand.now += TOOK

    before = list(gc.callbacks)
    gc.callbacks.append(takes)
    gc.disable()
    yield hand
    gc.enable()
    gc.callbacks[:] = before


@pytest.fixture
def collections(clock):
    found = FullCollections()
    with found.watched():
        yield found


def _step(steps=1, waited=0.0, paused=0.0):
    return Step(
        loss=torch.tensor(1.0), steps=steps, samples=8 * steps, tokens=None, micro_batches=steps,
        loader_wait_seconds=waited, paused_seconds=paused, skipped=0,
    )  # fmt: skip


def _run(collections, at, until):
    """Steps from 1 on, with a full collection in those of `at`; what they took of each."""
    taken = []
    for number in range(1, until + 1):
        if number in at:
            gc.collect()
        taken.append(collections.step(_step()))
    return taken


def test_without_a_full_collection_nothing_is_added(collections):
    gc.collect(1)

    assert _run(collections, at=(), until=10) == [0.0] * 10
    assert collections.seconds_per_step == 0.0


def test_each_is_taken_from_its_step_and_spread_over_those_between_two(collections):
    taken = _run(collections, at=(3, 13, 23), until=25)

    assert [number for number, seconds in enumerate(taken, start=1) if seconds] == [3, 13, 23]
    assert taken[2] == TOOK
    assert collections.seconds_per_step == pytest.approx(TOOK / 10)


@pytest.mark.parametrize(
    ("at", "until", "apart"),
    [
        ((40,), 45, 40),  # none before
        ((3,), 45, 42),  # what was built before the first step brought it about
        ((3, 5), 45, 40),  # and the next one is long in coming
    ],
)
def test_a_few_count_for_as_many_steps_as_went_without_one(collections, at, until, apart):
    _run(collections, at, until)

    assert collections.seconds_per_step == pytest.approx(TOOK / apart)


def test_those_of_blocks_count_for_every_step_of_them(collections):
    gc.collect()
    collections.step(_step(steps=50))

    assert collections.seconds_per_step == pytest.approx(TOOK / 50)


def test_those_of_a_pause_and_of_batches_that_were_not_trained_on_do_not_count(collections):
    gc.collect()
    assert collections.step(_step(paused=2 * TOOK)) == 0.0
    gc.collect()
    assert collections.taken() == TOOK
    assert collections.step(_step()) == 0.0

    assert collections.seconds_per_step == 0.0


@pytest.mark.parametrize(("waited", "while_loading"), [(2 * TOOK, True), (TOOK / 2, False)])
def test_it_is_known_whether_they_fall_into_the_loading(collections, waited, while_loading):
    gc.collect()
    collections.step(_step(waited=waited))

    assert collections.while_loading is while_loading


def test_no_seconds_are_less_than_none(clock):
    assert without_collecting(0.6, TOOK) == pytest.approx(0.1)
    assert without_collecting(0.01, TOOK) == 0.01  # it ran between two clocks


def test_a_user_may_empty_the_list_of_callbacks(clock):
    collections = FullCollections()
    with collections.watched():
        gc.callbacks.clear()


def test_nothing_is_noted_before_and_afterwards(clock):
    collections = FullCollections()
    gc.collect()
    with collections.watched():
        pass
    gc.collect()

    assert collections.step(_step()) == 0.0
