"""Judges the readings of a dataset's storage: rates, which epochs have them, and whether they drifted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, variance

from autotune.profile.storage_records import StorageUse
from autotune.units import counted, format_bytes, format_rate

LEAST_FROM_DISK = 0.1  # of the files' bytes: if less came from a disk, a cache still had them
MOVED_RATIO = 1.1  # ratio: if the second half's rate differs by more, it is not the rate of an epoch
CLEAR_STANDARD_ERRORS = 4.0  # standard errors by which halves must differ: batches of several workers arrive unevenly


def rate(arrived: Sequence[float], use: StorageUse) -> float | None:
    """Return samples per second of one pass; None: too few batches.

    Workers begin at the same time, so their first batches arrive together: the time counts from the last of these.
    """
    first = use.workers - 1
    if len(arrived) < 2 + max(0, first):
        return None
    began = arrived[first] if use.workers else 0.0
    return (len(arrived) - max(0, first) - bool(use.workers)) * use.batch / max(arrived[-1] - began, 1e-9)


def total_bytes(use: StorageUse) -> float:
    """Return the estimated bytes of the dataset's files: those opened, and the new bytes of each further sample."""
    return use.file_bytes + max(0, use.dataset_samples - use.samples) * use.new_bytes


def is_cold(use: StorageUse) -> bool:
    """Return whether the cold pass was cold: the data came from a disk, or from a store through an empty cache."""
    own = min(use.file_bytes, use.new_bytes * use.samples)  # of the samples only; of shared files they read a part
    expected = own + (use.file_bytes - own) * min(1, use.samples / use.dataset_samples)
    return bool(use.caches) or use.disk_bytes is None or use.disk_bytes >= LEAST_FROM_DISK * expected


def storage_sentence(use: StorageUse) -> str:
    """Return a sentence on the rates of the first and of later epochs, and their reasons."""
    cold, warm = rate(use.cold, use), rate(use.warm, use)
    if cold is None or warm is None:
        return f"storage: not known, samples are too few or too slow ({counted(len(use.cold), 'batch')} read)"
    total, memory = format_bytes(round(total_bytes(use))), format_bytes(use.memory_bytes)
    first = f"first epoch {format_rate(cold)} samples/s (cold)"
    if not is_cold(use):
        first = "first epoch not known (files stayed in memory)"
    if total_bytes(use) <= use.memory_bytes:
        later = f"later {format_rate(warm)} (warm: {total} of files fit into {memory} of memory)"
    elif use.caches:
        later = f"later {format_rate(warm)} at most (from the cache's disk: {total} of files, {memory} of memory)"
    else:
        later = f"later not much more ({format_rate(warm)} were they warm: {total} of files, {memory} of memory)"
    return f"storage: {first}, {later}"


def storage_doubts(use: StorageUse) -> list[str]:
    """Return a sentence for each rate that drifted while it was measured."""
    passes = (("first", use.cold), ("again", use.warm))
    return [
        f"Samples that are read {name} came at {format_rate(before)} samples/s, and later in the same measurement at "
        f"{format_rate(after)}: the rate of storage moved, probably by a cache of its own or other work. Neither is "
        f"that of a whole epoch. Profile again, and read more before."
        for name, arrived in passes
        if (halves := moved(arrived, use)) is not None
        for before, after in [halves]
    ]


def moved(arrived: Sequence[float], use: StorageUse) -> tuple[float, float] | None:
    """Return the rates of both halves if they differ clearly and by more than a tenth; else None."""
    rounds = [*arrived[:: max(1, use.workers)]]  # every `workers`-th arrival: between two, each worker makes a batch
    taken = [after - before for before, after in pairwise(rounds)]
    first, second = taken[: len(taken) // 2], taken[len(taken) // 2 :]
    if len(first) < 3:
        return None
    one, other = fmean(first), fmean(second)
    error = float(variance(first) / len(first) + variance(second) / len(second)) ** 0.5
    if (
        min(one, other) <= 0
        or max(one, other) < MOVED_RATIO * min(one, other)
        or abs(one - other) < CLEAR_STANDARD_ERRORS * error
    ):
        return None
    samples = use.batch * max(1, use.workers)
    return samples / one, samples / other
