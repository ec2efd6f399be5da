"""An endless stream of batches over the epochs of a loader, with the times when each was asked for and arrived."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import repeat
from typing import Any

from autotune.errors import TargetError
from autotune.targets.base import Watch
from autotune.targets.data import Source

_END = object()  # no batch can be this


class Feed:
    """Gives the batches of `source`, epoch after epoch, and reports each new epoch to the watch."""

    def __init__(self, source: Source, watch: Watch) -> None:
        self._source, self._watch = source, watch
        self._epoch: Iterator[Any] | None = None
        self._seen: Any = None
        self._instead: Iterator[Any] | None = None
        self.arrived = time.perf_counter()  # when the last batch of `next` arrived
        self.waited = 0.0  # seconds for all batches so far

    def next(self) -> Any:
        """Return the next batch; the time until it arrives counts as waiting."""
        asked = time.perf_counter()
        if self._instead is not None:
            self.arrived = asked
            return next(self._instead)
        self._seen = None  # freed while the next one is loaded
        batch = next(self._epoch, _END) if self._epoch is not None else _END
        if batch is _END:
            batch = self._begin()
        self._seen = batch
        self.arrived = arrived = time.perf_counter()
        self.waited += arrived - asked
        return batch

    @contextmanager
    def giving(self, batches: Iterator[Any]) -> Iterator[None]:
        """Give these batches, without waiting, until the end; the loader is not asked and draws no random numbers."""
        self._instead = batches
        try:
            yield
        finally:
            self._instead = None

    def repeating(self) -> AbstractContextManager[None]:
        """Repeat the last batch, without waiting, until the end."""
        return self.giving(repeat(self._seen))

    def unused(self) -> Any:
        """Return the next batch, which no step uses: the time until it arrives is not counted as waiting."""
        self._seen = None
        batch = next(self._epoch, _END) if self._epoch is not None else _END
        return self._begin() if batch is _END else batch

    def _begin(self) -> Any:
        asked, is_first = time.perf_counter(), self._epoch is None
        if not is_first:
            self._watch.epoch()
        self._epoch = self._source()
        batch = next(self._epoch, _END)
        if batch is _END:
            raise TargetError(
                "the loader gave no batch in a whole epoch. The data has fewer samples than one batch (the last, "
                "partial one is left out), or it can be iterated only once. Lower batch_size, or return an object "
                "whose __iter__ starts anew."
            )
        if is_first:
            self._watch.first_batch(time.perf_counter() - asked)
        return batch
