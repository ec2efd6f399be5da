"""An endless stream of batches over the epochs of a loader, which knows when each was asked for and when it came."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autotune.errors import TargetError
from autotune.targets.base import Watch
from autotune.targets.data import Source

_END = object()  # no batch can be this


class Feed:
    """Asks `source` for the next epoch whenever one ends, and tells the watch."""

    def __init__(self, source: Source, watch: Watch) -> None:
        self._source, self._watch = source, watch
        self._epoch: Iterator[Any] | None = None
        self._seen: Any = None
        self._repeats = False
        self.asked = self.arrived = time.perf_counter()  # for the batch that `next` gave last, and when it was there

    def next(self) -> Any:
        """The next batch; the time until it is there counts as waiting."""
        self.asked = time.perf_counter()
        if self._repeats:
            self.arrived = self.asked
            return self._seen
        first = self._epoch is None
        self._seen = None  # not held while the next one is loaded
        self._seen = batch = self._take()
        self.arrived = time.perf_counter()
        if first:
            self._watch.first_batch(self.arrived - self.asked)
        return batch

    @property
    def epoch(self) -> Iterator[Any] | None:
        """The epoch that is under way; None before the first batch."""
        return self._epoch

    @contextmanager
    def repeating(self) -> Iterator[None]:
        """Meanwhile the batch seen last comes again and again, without waiting."""
        self._repeats = True
        try:
            yield
        finally:
            self._repeats = False

    def unused(self) -> Any:
        """The next batch, for no step: the time until it is there is not waiting."""
        self._seen = None
        return self._take()

    def _take(self) -> Any:
        if self._epoch is not None:
            batch = next(self._epoch, _END)
            if batch is not _END:
                return batch
            self._watch.epoch()
        self._epoch = self._source()
        batch = next(self._epoch, _END)
        if batch is not _END:
            return batch
        raise TargetError(
            "the loader gave no batch in a whole epoch. The data has fewer samples than one batch (the last, partial "
            "one is left out), or it can be iterated only once. Lower batch_size, or return an object whose __iter__ "
            "starts anew."
        )
