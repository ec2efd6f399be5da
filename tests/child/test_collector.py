"""Importing looks for no garbage, and leaves the collector as it was or as the import wants it."""

import gc
import weakref

import pytest

from autotune.child.collector import uncollected


class Node:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def thresholds():
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_nothing_is_collected_meanwhile_and_everything_afterwards(thresholds):
    with uncollected():
        dropped = weakref.ref(Node())
        kept = [[] for _ in range(20 * thresholds[0])]
        assert dropped() is not None
    kept += [[] for _ in range(2 * thresholds[0])]

    assert dropped() is None
    assert thresholds == gc.get_threshold()


def test_an_import_that_fails_leaves_the_collector_as_it_was(thresholds):
    with pytest.raises(ImportError), uncollected():
        raise ImportError

    assert thresholds == gc.get_threshold()


def test_what_an_import_asks_of_the_collector_stands():
    with uncollected():
        gc.set_threshold(50_000, 20, 20)

    assert gc.get_threshold() == (50_000, 20, 20)
