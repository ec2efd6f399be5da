"""Reads a dataset's samples without training: first those that were not read before, then the same again.

    permutation ─► batches, each file dropped from the page cache as it is opened ─► the same samples, once more
                    └ cold: as in a first epoch                                       └ warm: as in later ones

By the loader that the configuration asks for, with its workers. Which of two probes finds the files in a cache would
decide otherwise: of one loader, 4 workers or none were the best, 4,000 or 17,000 samples/s, as the probes were ordered.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from autotune.machine.host import host_memory
from autotune.profile.measuring.opened_files import OpenedFiles, watched_files
from autotune.profile.storage_records import StorageUse
from autotune.targets.data import Epochs
from autotune.targets.peek import some_keys

READING_SECONDS = 3.0  # of reading what is cold, if that is enough for `_fewest`; a third of it for what is warm
MOST_READING_SECONDS = 20.0  # of each
MOST_PERMUTED_SAMPLES = 2**16  # of a permutation
MOST_BATCH = 32  # samples: of a slow store more take seconds, and few batches tell nothing
_FEWEST = 8  # batches, and as many for each worker but the first: they read as many at once

_Read = tuple[float, OpenedFiles]  # when a batch was there, and what it opened


class _Told:
    """A dataset that reports with each batch the files that its samples opened, also in a worker."""

    def __init__(self, loader: DataLoader[Any], kept: Path, *, drops: bool) -> None:
        self._dataset, self._collate, self._kept, self._drops = loader.dataset, loader.collate_fn, kept, drops

    def __getitems__(self, keys: Sequence[Any]) -> tuple[list[Any], OpenedFiles]:
        many = getattr(self._dataset, "__getitems__", None)
        with watched_files(drops=self._drops, kept=self._kept) as opened:
            return (many(keys) if many else [self._dataset[key] for key in keys]), opened

    def joined(self, read: tuple[list[Any], OpenedFiles]) -> tuple[Any, OpenedFiles]:
        """Return the batch, which workers hand over as in training, and what its samples opened."""
        samples, opened = read
        return self._collate(samples), opened


def read_storage(source: Any, kept: Path, seed: int, caches: int, beat: Callable[[], None]) -> StorageUse | None:
    """Return the readings; None if there are none: for a dataset without keys, or samples that open no file.

    Files in `kept` are those of `caches` of fsspec, which were made anew. `beat` is called with every batch.
    """
    loader = source.loader if isinstance(source, Epochs) else None
    if loader is None or isinstance(loader.dataset, IterableDataset) or not loader.batch_size:
        return None
    memory = host_memory().available_bytes
    dataset: Any = loader.dataset
    keys, size = _permutation(loader, seed), min(loader.batch_size, MOST_BATCH)
    workers = loader.num_workers if _forks(loader) else 0
    fewest = _FEWEST + max(0, workers - 1) * _FEWEST

    def batches(of: Iterable[Any], seconds: float, *, drops: bool) -> list[_Read]:
        told = _Told(loader, kept, drops=drops)
        reading: Any = DataLoader(
            told, batch_size=size, sampler=of, num_workers=workers, collate_fn=told.joined, drop_last=True,  # type: ignore[arg-type]  # it has `__getitems__`
            worker_init_fn=loader.worker_init_fn, multiprocessing_context=loader.multiprocessing_context,
            prefetch_factor=loader.prefetch_factor if workers else None,
        )  # fmt: skip
        return _timed(reading, fewest, seconds, beat, ends=drops)

    cold = batches(keys, READING_SECONDS, drops=True)
    if not cold or not any(opened.bytes for _, opened in cold):
        return None
    warm = batches(_Again(keys[: len(cold) * size]), READING_SECONDS / 3, drops=False)
    return _use(
        cold, warm, workers=workers, batch=size, dataset_samples=len(dataset), caches=caches, memory_bytes=memory
    )


class _Again:
    """A sampler that repeats the given keys endlessly."""

    def __init__(self, keys: Sequence[Any]) -> None:
        self._keys = keys

    def __iter__(self) -> Iterator[Any]:
        return cycle(self._keys)


def _timed(
    loader: Iterable[tuple[Any, OpenedFiles]], fewest: int, seconds: float, beat: Any, *, ends: bool
) -> list[_Read]:
    """Return the arrival times of batches; `ends`: stop after the first one if it opened no file."""
    read, began = list[_Read](), time.perf_counter()
    for _, opened in loader:
        passed = time.perf_counter() - began
        read.append((passed, opened))
        beat()
        nothing = ends and not opened.bytes and len(read) == 1
        if nothing or (passed > seconds and len(read) >= fewest) or passed > MOST_READING_SECONDS:
            break
    return read


def _use(cold: list[_Read], warm: list[_Read], *, batch: int, **known: Any) -> StorageUse:
    half = len(cold) // 2
    before, files = _opened(cold[:half]), _opened(cold)
    new = sum(size for path, size in files.items() if path not in before)
    disk = [opened.disk_bytes for _, opened in cold]
    return StorageUse(
        cold=tuple(when for when, _ in cold), warm=tuple(when for when, _ in warm), batch=batch,
        samples=len(cold) * batch, files=len(files), file_bytes=sum(files.values()),
        new_bytes=new / (batch * (len(cold) - half)),
        disk_bytes=None if None in disk else sum(filter(None, disk)), **known,
    )  # fmt: skip


def _opened(read: list[_Read]) -> dict[str, int]:
    return {path: size for _, opened in read for path, size in opened.bytes.items()}


def _permutation(loader: DataLoader[Any], seed: int) -> list[Any]:
    """Return different keys, none of which comes twice: no sample is read a second time while it is to be cold."""
    if not isinstance(loader.sampler, RandomSampler | SequentialSampler):
        return list(dict.fromkeys(some_keys(loader, MOST_PERMUTED_SAMPLES)))
    dataset: Any = loader.dataset
    count = len(dataset)
    return random.Random(f"storage {seed}").sample(range(count), min(count, MOST_PERMUTED_SAMPLES))


def _forks(loader: DataLoader[Any]) -> bool:
    """Return whether workers are forked: others would make their caches anew, where the user keeps them."""
    context = loader.multiprocessing_context or multiprocessing
    return bool(context.get_start_method() == "fork")
