"""Python's garbage collector: idle while a probe comes up, and as in any training once steps are timed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage while importing, which makes many objects to look through and drops few of them.

    A quarter of the time to import torch and torch._dynamo: 1.9 s and not 2.5 (torch 2.13, Python 3.11, one core).
    What an import itself asks of the collector stands.
    """
    first, *others = gc.get_threshold()
    gc.set_threshold(0, *others)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(first, *others)


class _Known:
    """Full collections of this process and its ancestors by the last one that saw every object."""

    full_collections = -1


def see_all() -> None:
    """Collect everything once, from which the collector knows how many objects there are.

    It runs the next full collection when a quarter as many have been added. One that has never counted those of torch
    runs it in the first steps that make a few thousand objects, for 0.2 to 0.5 s (300,000 objects, Python 3.11), and
    a training does so no more after its imports (docs/notes/timing.md 6). A process forked from this one knows the
    number, too.
    """
    gc.collect()
    _Known.full_collections = _full_collections()


def resume() -> None:
    """Look for garbage among all objects again, those frozen by `gc.freeze` too, as in any training."""
    gc.unfreeze()
    if _full_collections() != _Known.full_collections:
        see_all()


def _full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])
