"""Python's garbage collector: switched off while a probe starts, and as in any training once steps are timed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Switch the collector off while importing: imports make many objects and drop few of them.

    This saves a quarter of the time to import torch and torch._dynamo: 1.9 s instead of 2.5 s (torch 2.13, Python 3.11,
    one core). Settings of the collector that an import changes itself stay.
    """
    first, *others = gc.get_threshold()
    gc.set_threshold(0, *others)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(first, *others)


class _SeenAll:
    """The number of full collections at the last one that saw every object, in this process or before its fork."""

    full_collections = -1  # none has seen all


def see_all() -> None:
    """Run one full collection, so that the collector knows how many objects there are.

    The next full collection comes when a quarter as many have been added. Had the collector never counted torch's
    objects, it would run one of 0.2 to 0.5 s in the first steps that make a few thousand objects; an ordinary training
    has it during its imports (docs/notes/timing.md 6). A process forked from this one knows the number, too.
    """
    gc.collect()
    _SeenAll.full_collections = _full_collections()


def resume() -> None:
    """Switch the collector on for all objects again, including those frozen by `gc.freeze`, as in any training."""
    gc.unfreeze()
    if _full_collections() != _SeenAll.full_collections:
        see_all()


def _full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])
