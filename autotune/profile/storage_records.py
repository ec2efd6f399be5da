"""The readings of a dataset's storage: arrival of batches from files read for the first time, and read again.

`profile/storage_judge.py` makes rates and sentences of them.
"""

from __future__ import annotations

from autotune.core.records import Record


class StorageUse(Record, frozen=True, kw_only=True):
    """The times of reading a dataset, cold and warm, without training."""

    workers: int  # loader workers that read
    batch: int  # samples
    cold: tuple[float, ...]  # seconds from the beginning to each batch of samples that were not read before
    warm: tuple[float, ...]  # the same, for the samples of `cold`, read again and again
    samples: int  # number of samples in `cold`
    dataset_samples: int
    files: int  # number of files that the samples of `cold` opened
    file_bytes: int  # of them
    new_bytes: float  # per sample, of files that were opened for the first time, in the second half of `cold`
    disk_bytes: int | None = None  # that came from a disk while `cold` was read; None: unknown on this system
    caches: int = 0  # of fsspec, which keeps files of a remote store
    memory_bytes: int  # available for the page cache
