"""Looks at single samples of a dataset apart from the training, leaving no trace in what the training will see."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler


def loader_beside(loader: DataLoader[Any], **options: Any) -> DataLoader[Any]:
    """Return another loader over the same map-style dataset; `options` give the samples and how they are joined.

    If `loader` has workers, it has one too: a file that a dataset opens at its first sample and a cache that it fills
    stay in that process, and are not inherited by the workers that train.
    """
    return DataLoader(
        loader.dataset,
        num_workers=min(1, loader.num_workers),
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        **options,
    )


def some_keys(loader: DataLoader[Any], most: int) -> list[Any]:
    """Return up to `most` different keys of samples, spread over the dataset; with a user's own sampler its first."""
    if not isinstance(loader.sampler, RandomSampler | SequentialSampler):
        return list(islice(loader.sampler, most))
    dataset: Any = loader.dataset
    count = len(dataset)
    return random.Random(0).sample(range(count), min(count, most))


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restore the host's random state at the end, as if nothing had been drawn meanwhile."""
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)


def sample_size(sample: Any) -> int:
    """Return the size of one sample: elements of tensors and arrays, pixels of images, characters of texts."""
    if isinstance(sample, torch.Tensor):
        return sample.numel()
    if isinstance(sample, Mapping):
        return sum(map(sample_size, sample.values()))
    if isinstance(sample, str | bytes):
        return len(sample)
    if isinstance(sample, list | tuple):
        is_flat = bool(sample) and isinstance(sample[0], int | float)
        return len(sample) if is_flat else sum(map(sample_size, sample))
    size = getattr(sample, "size", 1)  # an array's elements; of an image in PIL, width and height
    if isinstance(size, tuple):
        return int(np.prod(size))
    return size if isinstance(size, int) else 1
