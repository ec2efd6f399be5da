"""Full collections are told apart from steps and spread over them. They are real, and how long they take is made up."""

import gc
import types

import pytest
import torch

from autotune.child import full_collections
from autotune.child.full_collections import FullCollections
from autotune.targets.base import Step

pytestmark = pytest.mark.slow  # collects all objects again and again
TOOK = 0.5


@pytest.fixture
def clock(monkeypatch):
    """`time.perf_counter`, by which a full collection takes half a second; all of them count as Python's own."""
    hand = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(full_collections, "time", types.SimpleNamespace(perf_counter=lambda: hand.now))

    def takes(phase, info):
        if info["generation"] == 2 and phase == "stop":
            hand.now += TOOK

    before, thresholds = list(gc.callbacks), gc.get_threshold()
    gc.callbacks.append(takes)
    gc.disable()
    gc.set_threshold(thresholds[0], thresholds[1], -1)
    yield hand
    gc.set_threshold(*thresholds)
    gc.enable()
    gc.callbacks[:] = before


@pytest.fixture
def collections(clock):
    found = FullCollections()
    with found.watched():
        yield found


@pytest.fixture
def overlapped(clock):
    found = FullCollections(overlapped=True)
    with found.watched():
        yield found


def _step(steps=1, waited=0.0, paused=0.0):
    return Step(
        loss=torch.tensor(1.0), steps=steps, samples=8 * steps, tokens=None, micro_batches=steps,
        loader_wait_seconds=waited, paused_seconds=paused, skipped=0,
    )  # fmt: skip


def _run(collections, entries, at=(), **told):
    """So many entries more, with a full collection in those of `at`, the first being 1."""
    for number in range(1, entries + 1):
        if number in at:
            gc.collect()
        collections.step(_step(**told))


def test_what_lies_between_two_of_the_window_is_the_interval(collections):
    _run(collections, 25, at=(3, 13, 23))

    assert collections.steps_apart == 10
    assert collections.seconds_per_step == pytest.approx(TOOK / 10)


def test_the_last_one_before_the_window_begins_an_interval_and_counts_for_nothing_else(collections):
    _run(collections, 10, at=(1, 2, 4))
    collections.begin()
    assert collections.steps_apart is None
    _run(collections, 20, at=(14,))

    assert collections.steps_apart == 10 - 4 + 14
    assert collections.seconds_per_step == pytest.approx(TOOK / 20)


@pytest.mark.parametrize(("before", "inside"), [((), (7,)), ((1, 2), ()), ((), ())])
def test_where_no_interval_is_known_entries_stay_as_they_are(collections, before, inside):
    _run(collections, 10, at=before)
    collections.begin()
    _run(collections, 10, at=inside)
    seconds, entries = [1.0] * 10, [_step() for _ in range(10)]

    assert collections.seconds_per_step == 0.0
    assert collections.spread(seconds, entries) == (tuple(seconds), entries)


@pytest.mark.parametrize(
    ("before", "inside", "is_open"), [((), (), False), ((4,), (), True), ((), (4,), True), ((4,), (4,), False)]
)
def test_it_is_open_after_one_until_the_next(collections, before, inside, is_open):
    _run(collections, 10, at=before)
    collections.begin()
    _run(collections, 10, at=inside)

    assert collections.is_open is is_open


def test_entries_have_the_same_share_each_and_blocks_that_of_all_their_steps(collections):
    _run(collections, 10, at=(2, 7), steps=4)
    entries = [_step(steps=4) for _ in range(10)]

    seconds, _ = collections.spread([0.2 + TOOK * (number in (2, 7)) for number in range(1, 11)], entries)

    assert seconds == pytest.approx([0.2 + TOOK / 5] * 10)


@pytest.mark.parametrize("shown", [0.0, 0.3, TOOK], ids=["hidden", "in part", "whole"])
@pytest.mark.parametrize("usual", [0.6, 0.05], ids=["long steps", "short steps"])
def test_what_a_device_hides_of_them_is_not_taken_from_steps(overlapped, usual, shown):
    _run(overlapped, 10, at=(2, 7))

    seconds, _ = overlapped.spread([usual + shown * (number in (2, 7)) for number in range(1, 11)], [_step()] * 10)

    assert seconds == pytest.approx([usual + shown / 5] * 10)


def test_waits_have_them_only_where_one_made_a_wait_longer(collections):
    _run(collections, 10, at=(2, 7))
    long = [TOOK * (number in (2, 7)) for number in range(1, 11)]
    whole = [1.3 + more for more in long]

    _, loading = collections.spread(whole, [_step(waited=1.0 + more) for more in long])
    _, computing = collections.spread(whole, [_step(waited=1.0) for _ in long])

    assert [one.loader_wait_seconds for one in loading] == pytest.approx([1.0 + TOOK / 5] * 10)
    assert [one.loader_wait_seconds for one in computing] == pytest.approx([1.0] * 10)


def test_no_entry_takes_less_than_nothing_and_none_waits_for_longer_than_it_takes(collections):
    _run(collections, 10, at=(2, 7))

    seconds, entries = collections.spread([0.01] * 10, [_step(waited=0.01) for _ in range(10)])

    assert min(seconds) > 0
    assert all(0 <= one.loader_wait_seconds <= whole for one, whole in zip(entries, seconds, strict=True))


@pytest.mark.parametrize(("paused", "count"), [(2 * TOOK, 0), (TOOK / 2, 2)])
def test_those_of_a_pause_do_not_count(collections, paused, count):
    _run(collections, 10, at=(2, 7), paused=paused)

    assert bool(collections.steps_apart) is bool(count)


def test_those_of_batches_that_were_not_trained_on_do_not_count(collections):
    gc.collect()
    collections.begin()
    _run(collections, 10, at=(7,))

    assert collections.steps_apart is None


def test_those_that_the_user_asks_for_are_steps_of_his_own(clock):
    gc.set_threshold(700, 10, 1000)
    collections = FullCollections()
    with collections.watched():
        _run(collections, 10, at=(2, 7))

    assert collections.steps_apart is None


def test_pythons_own_are_told_from_them():
    collections, kept = FullCollections(), []
    gc.collect()
    gc.freeze()  # a quarter of all objects would bring the next one about: of the tests, there are too many
    gc.collect()
    with collections.watched():
        for _ in range(100):
            kept += [[] for _ in range(5_000)]
            collections.step(_step())
    gc.unfreeze()

    assert collections.steps_apart


def test_nothing_is_noted_before_and_afterwards(clock):
    collections = FullCollections()
    gc.collect()
    with collections.watched():
        pass
    gc.collect()
    _run(collections, 2)

    assert collections.seconds_per_step == 0.0


def test_a_user_may_empty_the_list_of_callbacks(clock):
    with FullCollections().watched():
        gc.callbacks.clear()
