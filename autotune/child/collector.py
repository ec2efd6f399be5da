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


class _SeenAll:
    """How many full collections there had been when one last saw every object, in this process or before its fork."""

    full_collections = -1  # none has


def see_all() -> None:
    """Collect everything once, from which the collector knows how many objects there are.

    It runs the next full collection when a quarter as many have been added. If it had never counted those of torch, it
    would run one of 0.2 to 0.5 s in the first steps that make a few thousand objects, which a training does during its
    imports (docs/notes/timing.md 6). A process forked from this one knows the number, too.
    """
    gc.collect()
    _SeenAll.full_collections = _full_collections()


def resume() -> None:
    """Look for garbage among all objects again, those frozen by `gc.freeze` too, as in any training."""
    gc.unfreeze()
    if _full_collections() != _SeenAll.full_collections:
        see_all()


def _full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])
