"""The readings of a dataset's storage: batches that came from files read for the first time, and from the same again.

`profile/storage_judge.py` makes rates and sentences of them.
"""

from __future__ import annotations

from autotune.core.records import Record


class StorageUse(Record, frozen=True, kw_only=True):
    """What reading a dataset took, cold and warm, without training."""

    workers: int  # loader workers that read
    batch: int  # samples
    cold: tuple[float, ...]  # seconds from the beginning to each batch, of samples that were not read before
    warm: tuple[float, ...]  # the same, of the samples of `cold` again and again
    samples: int  # of `cold`
    dataset_samples: int
    files: int  # that the samples of `cold` were seen to open
    file_bytes: int  # of them
    new_bytes: float  # per sample, of files that were opened for the first time, in the second half of `cold`
    disk_bytes: int | None = None  # that came from a disk while `cold` was read; None: the system does not tell
    caches: int = 0  # of fsspec, which keeps files of a remote store
    memory_bytes: int  # that was available, to keep files in
