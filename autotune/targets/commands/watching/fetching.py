"""Watches the iterators of DataLoaders: how many samples they fetch, how long that takes, by how many workers.

A batch counts only when a backward pass follows it, because an evaluation fetches batches, too.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from operator import length_hint
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loading

from autotune.core.records import CheckLine
from autotune.targets.batches import count_tokens
from autotune.targets.commands.distributed import world_size
from autotune.targets.commands.watching.loader_batches import LoaderBatches, cut_of
from autotune.targets.own_loop import LoopReport
from autotune.targets.ranks.data_shares import batch_checksum
from autotune.targets.tracebacks import calling_place

_MOST = 1024  # batches that wait: a Trainer first fetches all of a step, and an evaluation fetches many
_MOST_BETWEEN_STEPS = 8  # Accelerate is one batch ahead; older ones were never trained on


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A batch that a DataLoader gave: its samples, tokens and waiting time."""

    samples: int
    tokens: int
    seconds: float  # that the training waited for it


class Fetching:
    """The batches of all loaders, and the one loader that feeds the training."""

    def __init__(self, report: LoopReport, going_on: Callable[[], None]) -> None:
        """`going_on` is called when the next batch to train on is asked for."""
        self.data: Any = None  # the dataset that is trained on; None: there is no DataLoader, or no backward pass yet
        self.workers: int | None = None  # workers of its loader
        self.options: dict[str, Any] = {}  # its options for workers and for an accelerator
        self.watching_seconds = 0.0  # spent on looking at batches
        self.thread: threading.Thread | None = None  # that trains: only its waits count
        self.replacements: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
            (loading._BaseDataLoaderIter, "__next__", self._fetching),
            (DataLoader, "__iter__", self._beginning),
            (DataLoader, "__init__", self._making),
        )
        self._report, self._going_on, self._process = report, going_on, os.getpid()
        self._here = threading.local()  # `is_busy`: the data of a loader may come from another loader
        self._waiting: dict[int, deque[Fetched]] = {}  # batches by the identity of their dataset
        self._latest: Any = None  # the dataset of the batch that was fetched last
        # By dataset that was fetched from with gradients: the batches of an epoch; 0: unknown.
        self._training_epoch_batches: dict[int, int] = {}
        self._places: dict[int, str] = {}  # the lines that made loaders, by the identity of their dataset
        self._counts: dict[int, LoaderBatches] = {}  # likewise
        self._firsts: dict[int, int] = {}  # checksums of the first batches to train on, likewise
        self._asked = 0.0  # time at which an iterator was made that has given nothing yet

    @property
    def is_busy(self) -> bool:
        """Whether this thread is fetching."""
        return getattr(self._here, "is_busy", False)

    @property
    def has_fetched(self) -> bool:
        """Whether any DataLoader has given a batch."""
        return bool(self._waiting)

    @property
    def epoch_batches(self) -> int:
        """The batches of the training loader in one epoch; 0: unknown, or one rank trains."""
        return self._training_epoch_batches.get(id(self.data), 0)

    @property
    def place(self) -> str:
        """The user's line that made the training loader, as `train.py:12`; empty: unknown, or one rank trains."""
        return self._places.get(id(self.data), "")

    @property
    def loader_batch(self) -> int:
        """The samples of a batch, as the training loader was made; 0: it does not say."""
        counts = self._counts.get(id(self.data))
        return (counts.cut or 0) if counts else 0

    @property
    def first_batch(self) -> int:
        """A checksum of the training loader's first batch; 0: unknown, or one rank trains."""
        return self._firsts.get(id(self.data), 0)

    @property
    def check_line(self) -> CheckLine | None:
        """How the samples of the training loader's batches are counted, if that is inferred."""
        counts = self._counts.get(id(self.data))
        return counts.check_line if counts else None

    def take(self) -> Fetched | None:
        """Remove and return the oldest fetched batch; None if there is none."""
        latest = self._waiting.get(id(self._latest))
        if latest:
            self.data = self._latest
            return latest.popleft()
        own = self._waiting.get(id(self.data))
        return own.popleft() if own else None

    def step(self) -> None:
        """Note that a step is over: forget batches that were fetched long ago."""
        own = self._waiting.get(id(self.data))
        while own and len(own) > _MOST_BETWEEN_STEPS:
            own.popleft()

    def _beginning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def begin(loader: Any) -> Any:
            if self.data is not None and loader.dataset is self.data and torch.is_grad_enabled():
                self._going_on()
            self._asked = time.perf_counter()
            return original(loader)

        return begin

    def _making(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def make(loader: Any, *arguments: Any, **named: Any) -> None:
            original(loader, *arguments, **named)
            if world_size() > 1:
                self._places[id(loader.dataset)] = calling_place(sys._getframe(1))

        return make

    def _fetching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def fetch(iterator: Any) -> Any:
            if self.is_busy or os.getpid() != self._process:
                return original(iterator)
            is_own = iterator._dataset is self.data and torch.is_grad_enabled()  # an evaluation may use it, too
            if is_own:
                self._going_on()
            self._here.is_busy = True
            asked, self._asked = self._asked or time.perf_counter(), 0.0
            try:
                batch = original(iterator)
            except StopIteration:
                if is_own and not self._report.stopped:  # with several ranks, one may go on
                    self._report.epoch()
                raise
            finally:
                self._here.is_busy = False
            arrived = time.perf_counter()
            is_waited_for = threading.current_thread() is self.thread
            self._note(iterator, batch, arrived - asked if is_waited_for else 0.0, arrived)
            self.watching_seconds += time.perf_counter() - arrived
            return batch

        return fetch

    def _note(self, iterator: Any, batch: Any, seconds: float, arrived: float) -> None:
        data = iterator._dataset
        if torch.is_grad_enabled() and id(data) not in self._training_epoch_batches:
            self._training_epoch_batches[id(data)] = 0
            with suppress(Exception):  # of a sampler of the user's
                self._training_epoch_batches[id(data)] = length_hint(iterator) if world_size() > 1 else 0
            with suppress(RuntimeError, TypeError, NotImplementedError):  # of a tensor that torch cannot read
                self._firsts[id(data)] = batch_checksum(batch) if world_size() > 1 else 0
            self._waiting.pop(id(data), None)
        elif not torch.is_grad_enabled() and id(data) in self._training_epoch_batches:
            self._report.alive()
            return
        self._latest = data
        sampler, counts = iterator._index_sampler, self._counts.get(id(data))
        if counts is None or counts.cut != cut_of(sampler):
            counts = self._counts[id(data)] = LoaderBatches(sampler)
        samples = counts(batch)
        fetched = Fetched(samples=samples, tokens=count_tokens(batch), seconds=seconds)
        self._waiting.setdefault(id(data), deque(maxlen=_MOST)).append(fetched)
        if self.data is None or data is self.data:
            self.workers, self.options = iterator._num_workers, _options(iterator)
        self._report.alive()  # an evaluation may be long
        if data is self.data:
            self._report.shapes.note(batch, samples, arrived)


def _options(iterator: Any) -> dict[str, Any]:
    """Return the options of a DataLoader that have an effect in this iterator."""
    found: dict[str, Any] = {}
    if iterator._num_workers:
        found |= {"prefetch_factor": iterator._prefetch_factor, "persistent_workers": iterator._persistent_workers}
    if torch.accelerator.is_available():
        found["pin_memory"] = iterator._pin_memory
    return found
