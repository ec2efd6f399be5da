"""An endless stream of batches over the epochs of a loader, which knows how long it was waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
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
        self._waited_seconds = 0.0

    def next(self) -> Any:
        """The next batch; the time until it is there counts as waiting."""
        first = self._epoch is None
        began = time.perf_counter()
        batch = self._take()
        seconds = time.perf_counter() - began
        self._waited_seconds += seconds
        if first:
            self._watch.first_batch(seconds)
        return batch

    def waited_seconds(self) -> float:
        """Seconds spent waiting since this was last asked."""
        seconds, self._waited_seconds = self._waited_seconds, 0.0
        return seconds

    def drain(self, batches: int) -> None:
        """Throw away that many: what the loader had prepared while nobody was waiting. Counts for no step."""
        for _ in range(batches):
            self._take()

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
