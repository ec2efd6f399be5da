"""The share of the data that a rank trains on: no two have a sample in common, and all have equally many batches."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler
from torch.utils.data.distributed import DistributedSampler

from autotune.core.records import CheckLine
from autotune.targets.batches import tensors
from autotune.targets.contract import NAMES
from autotune.targets.ranks import world

_SEEDS = 2**32  # as many as numpy has


class SharedOut(Sampler[Any]):
    """Every N-th index of a sampler, from this rank's number on, for N ranks; an incomplete last round is left out.

    On all ranks the sampler draws the same indices in an epoch, whatever was drawn before: only so the shares do not
    overlap. They are drawn when an epoch begins, all at once if the sampler has a length.
    """

    def __init__(self, sampler: Any, seed: int) -> None:
        self._sampler, self._seed, self._epoch = sampler, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Draw the indices of that epoch, counted from 0."""
        self._epoch = epoch
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._sampler) // world.world().size

    def __iter__(self) -> Iterator[Any]:
        own = world.world()
        with _drawing(self._seed + self._epoch):
            indices = iter(self._sampler)
            if isinstance(self._sampler, Sized):
                indices = iter([index for index, _ in zip(indices, range(len(self._sampler)), strict=False)])
        while len(each := [index for _, index in zip(range(own.size), indices, strict=False)]) == own.size:
            yield each[own.rank]


def loader_options(dataset: Any, sampler: Any) -> dict[str, Any]:
    """Return the DataLoader options that give this rank its share; `sampler`: the user's, or None to shuffle.

    A user's `DistributedSampler` has divided the data already. Every rank must call it.
    """
    own = world.world()
    if own.size == 1:
        return {"shuffle": True} if sampler is None else {"sampler": sampler}
    seed = world.agreed(torch.initial_seed() % _SEEDS)
    if sampler is None:
        of_rank: Any = DistributedSampler(
            dataset, num_replicas=own.size, rank=own.rank, shuffle=True, seed=seed, drop_last=True
        )
    else:
        of_rank = sampler if isinstance(sampler, DistributedSampler) else SharedOut(sampler, seed)
    return {"sampler": of_rank}


def check_lines(kind: str, samples: int | None, batch: Any, batches: int, line: str = "") -> list[CheckLine]:
    """Return lines of `check` about ranks whose data are divided wrongly. Every rank must call it.

    `kind` and `samples` are those of `Data`, `batch` the first that this rank loaded, `batches` those of an epoch; 0:
    not known. `line` is that of the function that gives them, ` (model.py:12)`.
    """
    size = world.world().size
    if size == 1:
        return []
    if kind not in ("iterable", "dataloader"):
        return _unequal_datasets(world.gathered(samples or 0), line)
    said = world.gathered(batch_checksum(batch), batches)
    sums, counts = said[::2], said[1::2]
    found = []
    if len(set(sums)) == 1:
        advice = (
            "torch.utils.data.distributed.DistributedSampler in dataloader()"
            if kind == "dataloader"
            else "itertools.islice(samples, rank, None, ranks) in __iter__, of torch.distributed's get_rank() and "
            "get_world_size()"
        )
        text = (
            f"all {size} ranks had the same first batch, so an optimizer step probably learns each sample {size} "
            f"times. Give each rank its share: {advice}{line}"
        )
        override = NAMES["dataloader"] if kind == "dataloader" else NAMES["dataset"]
        found.append(CheckLine(name="ranks", text=text, override=override, needs_attention=True))
    if all(counts) and len(set(counts)) > 1:
        text = (
            f"an epoch has {' and '.join(f'{count:,}' for count in counts)} batches, by rank. Probes go on with the "
            f"next epoch, where a training that ends with its epoch waits for ever: give each rank as many, or train "
            f"under torch.distributed.algorithms.join.Join{line}"
        )
        found.append(CheckLine(name="ranks", text=text, needs_attention=True))
    return found


def _unequal_datasets(samples: Sequence[int], line: str) -> list[CheckLine]:
    """Return the line about datasets of different length, by rank, of which each rank takes its share."""
    if len(set(samples)) == 1:
        return []
    text = (
        f"the dataset has {' and '.join(f'{count:,}' for count in samples)} samples, by rank. Each rank takes its "
        f"share of what it is given, so samples are trained on twice or never, and epochs end at different steps. Give "
        f"all ranks the whole dataset, which autotune shares out{line}"
    )
    return [CheckLine(name="ranks", text=text, override=NAMES["dataset"], needs_attention=True)]


def batch_checksum(batch: Any) -> int:
    """Return a number that is the same for batches with the same tensors; 32 bits."""
    total = 0
    for tensor in tensors(batch):
        part = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
        total = zlib.crc32(part.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes(), total)
    return total


@contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """Seed torch, numpy and Python until the end, and then restore their random states."""
    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([]):
        random.seed(seed)
        np.random.seed(seed % _SEEDS)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
