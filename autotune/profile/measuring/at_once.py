"""Samples that a DataLoader takes one by one and joins, where `dataset[indices]` gives the same batch at once.

one by one   collate_fn([dataset[3], dataset[9], ...])      a call and a copy for each sample
at once      dataset[[3, 9, ...]]                           one indexing for each tensor of a `TensorDataset`
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, default_convert
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from autotune.machine.host import usable_cores
from autotune.profile.measuring.stopwatch import replaced
from autotune.profile.measuring.user_lines import line_of, slow_line
from autotune.profile.records import SlowLine
from autotune.targets.peek import random_state_kept, some_keys

AT_ONCE_ROUNDS = 20  # of both ways in turn; the shortest counts, because other work only makes them longer
MOST_AT_ONCE_SECONDS = 0.5  # of all rounds, but for the first


def one_by_one(loader: DataLoader[Any], samples: float, waiting: float, step: float) -> SlowLine | None:
    """Return what a step of so many samples loses by taking them one by one; None: nothing, or they have to be.

    `waiting` and `step` are seconds. The user's `__getitem__` is called with a list. One that catches errors is not:
    an error is the usual answer, and some try until there is none. Nor is a dataset whose samples the user's own code
    joins: that has a line of its own.
    """
    dataset: Any = loader.dataset
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    if isinstance(dataset, IterableDataset) or hasattr(dataset, "__getitems__") or (loader.batch_size or 0) < 2:
        return None
    if line_of(loader.collate_fn) is not None:
        return None
    code = getattr(inspect.unwrap(type(dataset).__getitem__), "__code__", None)
    if code is None or code.co_exceptiontable:
        return None
    with random_state_kept():
        try:
            keys = some_keys(loader, loader.batch_size or 0)
            before = _random_state()
            at_once, together = _timed(lambda: _at_once(loader.dataset, keys))
            singly, joined = _timed(lambda: _joined(loader, keys))
            if not _alike(together, joined) or _random_state() != before:
                return None
            ends = time.perf_counter() + MOST_AT_ONCE_SECONDS
            for _ in range(AT_ONCE_ROUNDS):
                if time.perf_counter() + at_once + singly > ends:
                    break
                at_once = min(at_once, _timed(lambda: _at_once(loader.dataset, keys))[0])
                singly = min(singly, _timed(lambda: _joined(loader, keys))[0])
        except Exception:  # the user's: most datasets take one index
            return None
    if not loader.num_workers:
        gain = waiting * (1 - at_once / singly)  # of what steps wait, where caches are colder than here
    else:
        batches, workers, beside = samples / len(keys), min(loader.num_workers, usable_cores()), step - waiting
        late, later = (max(0.0, one * batches / workers - beside) for one in (at_once, singly))
        gain = min(later - late, waiting)
    name, line = type(dataset).__name__, line_of(type(dataset).__getitem__)
    return slow_line("one by one", line, name, samples, gain) if gain > 0 else None


@contextmanager
def fetching_at_once(dataset: Any) -> Iterator[Callable[[bool], None]]:
    """Yield what lets DataLoaders of `dataset` in this process take batches at once, or sample by sample again."""
    fetch: Any = _MapDatasetFetcher.fetch
    is_on = False

    def switch(is_without: bool) -> None:
        nonlocal is_on
        is_on = is_without

    def fetching(fetcher: Any, indices: Any) -> Any:
        is_asked = is_on and fetcher.dataset is dataset and fetcher.auto_collation
        return _at_once(dataset, indices) if is_asked else fetch(fetcher, indices)

    with replaced(_MapDatasetFetcher, "fetch", fetching):
        yield switch


def _random_state() -> tuple[Any, ...]:
    """Return the states of the generators that datasets draw from: one that draws gives another batch at once."""
    return random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().tolist()  # type: ignore[index]


def _at_once(dataset: Any, keys: list[Any]) -> Any:
    """Return what a DataLoader without a batch size makes of a list of indices."""
    return default_convert(dataset[keys])  # type: ignore[no-untyped-call]


def _joined(loader: DataLoader[Any], keys: list[Any]) -> Any:
    return loader.collate_fn([loader.dataset[key] for key in keys])


def _timed(way: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that it takes, and what it makes."""
    began = time.perf_counter()
    made = way()
    return time.perf_counter() - began, made


def _alike(one: Any, other: Any) -> bool:
    """Return whether two batches are the same to a loss: a list of tensors stands for a tuple of them."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return False
