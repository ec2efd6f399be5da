"""The time of single samples of the user's dataset: whether a few of them take many times as long as the others."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any

from torch.utils.data import IterableDataset, Subset

from autotune.machine.interference import run_queue_wait
from autotune.profile.measuring.loader_order import PREFETCH, step_seconds
from autotune.profile.measuring.stopwatch import replaced
from autotune.profile.measuring.user_lines import line_of, slow_line
from autotune.profile.records import SlowLine, Slowness
from autotune.targets.data import Epochs, Source
from autotune.targets.peek import random_state_kept, some_keys

MOST_LOADING_SECONDS = 1.0  # of reading samples beside the training, where its workers read them
MOST_TIMED_SAMPLES = 512
FEWEST_SAMPLES = 32
MOST_AGAIN = 24  # slow samples that are read a second time: busy machines and cold disks make others slow once
DRAWN_BATCHES = 256  # that are drawn to see what their order gives
ORDER_SHARE = 0.5
SLOW_SAMPLE_RATIO = 10.0  # times the median: decoding of images spreads by 2 to 3 times

_Read = tuple[float, Any]  # the seconds and the index of one sample


class Samples:
    """The seconds of each sample that was read, with its index."""

    def __init__(self, source: Source) -> None:
        self._loader = source.loader if isinstance(source, Epochs) else None
        dataset: Any = self._loader.dataset if self._loader else None
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        is_read_singly = not isinstance(dataset, IterableDataset) and not hasattr(dataset, "__getitems__")
        self._dataset: Any = dataset if is_read_singly else None
        self._reader: Any = self._dataset  # that knows the indices of `_read`
        self._read: list[_Read] = []
        self.is_on = False
        self.tail_seconds = 0.0  # of a step: what it gains without slow samples

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch what this process reads, while `is_on`."""
        kind = type(self._dataset)
        read: Any = getattr(kind, "__getitem__", None)
        is_here = self._dataset is not None and self._loader is not None and not self._loader.num_workers

        @functools.wraps(read)
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
        self._reader = self._loader.dataset
        with random_state_kept():
            for index in some_keys(self._loader, MOST_TIMED_SAMPLES):
                self._read.append((self._seconds_of(index), index))
                if sum(map(_seconds, self._read)) > MOST_LOADING_SECONDS:  # without what others took of it
                    break

    def result(self, samples: float, waiting: float, step: float) -> SlowLine | None:
        """Return what the slow samples cost a step of so many samples; `waiting` for data and `step` are seconds."""
        if len(self._read) < FEWEST_SAMPLES:
            return None
        usual = median(seconds for seconds, _ in self._read)
        slow = [one for one in sorted(self._read, reverse=True, key=_seconds) if one[0] > SLOW_SAMPLE_RATIO * usual]
        sure = [one for one in map(self._again, slow[:MOST_AGAIN]) if one[0] > SLOW_SAMPLE_RATIO * usual]
        if not sure:
            return None
        longest, index = max(sure, key=_seconds)
        count = len(sure) * len(slow) / len(slow[:MOST_AGAIN]) * samples / len(self._read)
        excess = sum(seconds - usual for seconds, _ in sure) / len(sure)
        kind: Slowness = "tail"
        gain = self.tail_seconds = min(count * excess, waiting)
        if self._loader is not None and self._loader.num_workers > 1:
            gain, kind = self._beside_others(round(samples), usual, waiting, step)
        return slow_line(kind, line_of(type(self._dataset).__getitem__), str(index), count, gain, longest / usual)

    def _beside_others(self, samples: int, most: float, waiting: float, step: float) -> tuple[float, Slowness]:
        """Simulate the workers, and return what steps gain, and by what.

        `order`: by taking batches as they are ready. `tail`: by no sample above the median. `order` is named if it
        gains at least half as much as `tail`. Batches are drawn from the samples that were read.
        """
        assert self._loader is not None
        drawn, workers = random.Random(0), self._loader.num_workers
        usual = [min(seconds, most) for seconds, _ in self._read]
        keys = [drawn.choices(range(len(self._read)), k=samples) for _ in range(DRAWN_BATCHES)]
        slow = [sum(self._read[key][0] for key in batch) for batch in keys]
        prefetch = self._loader.prefetch_factor or PREFETCH

        def taken(batches: list[float], *, in_order: bool) -> float:
            return step_seconds(batches, workers, step - waiting, in_order=in_order, prefetch=prefetch)

        now = taken(slow, in_order=True)
        without = max(0.0, now - taken([sum(usual[key] for key in batch) for batch in keys], in_order=True))
        as_ready = max(0.0, now - taken(slow, in_order=False)) if getattr(self._loader, "in_order", False) else 0.0
        self.tail_seconds = min(without, waiting)
        is_order = as_ready > 0 and as_ready >= ORDER_SHARE * without
        return (min(as_ready, waiting), "order") if is_order else (min(without, waiting), "tail")

    def _again(self, read: _Read) -> _Read:
        """Return a sample's shorter time of two: the first may have been long because the machine was busy."""
        return min(read[0], self._seconds_of(read[1])), read[1]

    def _seconds_of(self, index: Any) -> float:
        """Read a sample; return its time without that in which others had this thread's core."""
        waited, began = run_queue_wait(), time.perf_counter()
        self._reader[index]
        passed = time.perf_counter() - began
        return max(0.0, passed - ((run_queue_wait() or 0.0) - (waited or 0.0)))


def _seconds(read: _Read) -> float:
    return read[0]
