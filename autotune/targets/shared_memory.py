"""Checks, before a worker is started, whether the batches of loader workers fit into /dev/shm."""

from __future__ import annotations

import mmap
from typing import Any

from torch.utils.data import DataLoader

from autotune.targets.base import SharedMemoryTooSmall
from autotune.targets.batches import tensors
from autotune.targets.peek import loader_beside, random_state_kept, some_keys
from autotune.units import format_bytes

# Besides the batches prepared in advance: the batch in training, and the next one, fetched meanwhile. Measured with
# torch 2.13: the most in /dev/shm was workers * prefetch + 2 batches, for 1 to 4 workers, 2 to 4 ahead.
BATCHES_IN_USE = 2


def check(loader: DataLoader[Any], free: int | None) -> None:
    """Raise `SharedMemoryTooSmall` if the workers of `loader` would need more shared memory than the `free` bytes.

    It loads one sample, in a process of its own. It does nothing if that is impossible or proves nothing: without
    workers, without /dev/shm (`free` is None), for iterable data, and for samples that fail, because the loader raises
    a better error.
    """
    if free is None or not loader.num_workers:
        return
    batch = batch_bytes(loader)
    batches = loader.num_workers * (loader.prefetch_factor or 1) + BATCHES_IN_USE
    if batch * batches > free:
        raise SharedMemoryTooSmall(
            f"num_workers {loader.num_workers} keeps up to {batches} batches of {format_bytes(batch)} in shared "
            f"memory, {format_bytes(batch * batches)} in all, and /dev/shm has {format_bytes(free)} free. A container "
            f"gets 64 MiB of it unless told otherwise. Use fewer workers or a smaller batch, or give it more "
            f"(docker run --shm-size)."
        )


def batch_bytes(loader: DataLoader[Any]) -> int:
    """Return the bytes of shared memory of one batch, by its first sample: whole pages per tensor; 0 if unknown."""
    with random_state_kept():
        try:
            one = next(iter(loader_beside(loader, batch_sampler=[some_keys(loader, 1)], collate_fn=loader.collate_fn)))
            sizes = [part.nbytes for part in tensors(one) if part.device.type == "cpu"]
        except Exception:  # whatever it is, the training raises it again, with the right explanation
            return 0
    return sum(-(size * (loader.batch_size or 1) // -mmap.PAGESIZE) * mmap.PAGESIZE for size in sizes)
