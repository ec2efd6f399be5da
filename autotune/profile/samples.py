"""The time of single samples of the user's dataset: whether a few of them take many times as long as the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any

from torch.utils.data import IterableDataset, Subset

from autotune.profile.records import SlowLine
from autotune.profile.stopwatch import replaced
from autotune.profile.user_lines import UserLine, owner
from autotune.targets.data import Epochs, Source
from autotune.targets.peek import random_state_kept, some_keys

MOST_SECONDS = 1.0  # of reading samples beside the training, where its workers read them
MOST_SAMPLES = 512
FEWEST_SAMPLES = 32
SLOW = 10.0  # times the median: decoding of images spreads by 2 to 3 times


class Samples:
    """The seconds of each sample that was read, with its index."""

    def __init__(self, source: Source) -> None:
        self._loader = source.loader if isinstance(source, Epochs) else None
        dataset: Any = self._loader.dataset if self._loader else None
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        is_read_singly = not isinstance(dataset, IterableDataset) and not hasattr(dataset, "__getitems__")
        self._dataset: Any = dataset if is_read_singly else None
        self._read: list[tuple[float, Any]] = []
        self.is_on = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch what this process reads, while `is_on`."""
        kind = type(self._dataset)
        read: Any = getattr(kind, "__getitem__", None)
        is_here = self._dataset is not None and self._loader is not None and not self._loader.num_workers

        def timed(dataset: Any, index: Any) -> Any:
            began = time.perf_counter()
            sample = read(dataset, index)
            if self.is_on and dataset is self._dataset:
                self._read.append((time.perf_counter() - began, index))
            return sample

        with replaced(kind, "__getitem__", timed) if is_here and kind.__module__ != "builtins" else nullcontext():
            yield

    def read_beside(self) -> None:
        """Read some samples here, where the training left that to its workers."""
        if self._read or self._dataset is None or self._loader is None:
            return
        with random_state_kept():
            ends = time.perf_counter() + MOST_SECONDS
            for index in some_keys(self._loader, MOST_SAMPLES):
                began = time.perf_counter()
                self._loader.dataset[index]
                self._read.append((time.perf_counter() - began, index))
                if self._read[-1][0] + began > ends:
                    break

    def result(self, samples: float, waiting: float) -> SlowLine | None:
        """Return what the slow samples cost a step of so many samples, which waits so many seconds for data."""
        if len(self._read) < FEWEST_SAMPLES:
            return None
        usual = median(seconds for seconds, _ in self._read)
        slow = [seconds - usual for seconds, _ in self._read if seconds > SLOW * usual]
        if not slow:
            return None
        longest, index = max(self._read, key=lambda one: one[0])
        code = getattr(getattr(type(self._dataset), "__getitem__", None), "__code__", None)
        line = UserLine.of(code, code.co_firstlineno) if code and owner(code.co_filename) == "user" else None
        share = samples / len(self._read)
        return SlowLine(
            kind="tail", place=line.place if line else "", code=line.text if line else "", what=str(index),
            count=len(slow) * share, seconds=min(sum(slow) * share, waiting), ratio=longest / usual,
        )  # fmt: skip
