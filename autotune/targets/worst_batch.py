"""The batch that needs the most memory: the target's own `worst_batch`, or else its longest samples."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data import DataLoader

from autotune.targets.contract import Contract
from autotune.targets.data import Data, Epochs, Source
from autotune.targets.peek import loader_beside, random_state_kept, sample_size, some_keys
from autotune.targets.user_errors import blaming

MOST_LOOKING_SECONDS = 2.0  # of looking at samples: a probe takes about 5 s
MOST_LOOKED_AT = 4096

Worst = Callable[[bool], Any]  # from whether shapes vary to the batch; None: no worse one is known than those seen


def worst_case(contract: Contract, data: Data, source: Source, offered: Mapping[str, Any]) -> Worst:
    """Return the function that makes this target's worst batch, in the form of its loader's batches."""
    if "worst_batch" in contract:
        return lambda shapes_vary: contract.make("worst_batch", offered, sole="batch_size")
    if data.kind != "dataset" or not isinstance(source, Epochs):
        return lambda shapes_vary: None
    loader = source.loader

    def make(shapes_vary: bool) -> Any:
        with blaming("the longest samples of dataset()", contract.root):
            return longest(loader) if shapes_vary else None

    return make


def longest(loader: DataLoader[Any], clock: Callable[[], float] = time.monotonic) -> Any:
    """Return one batch of the largest samples among those that there is time to look at, joined as by `loader`.

    If there was time for fewer samples than the batch has, they are repeated. Not covered: samples that are random at
    every access, and memory that does not depend on the size of the samples.
    """
    size = loader.batch_size or 1
    with random_state_kept():
        keys = some_keys(loader, MOST_LOOKED_AT)
        ends = clock() + MOST_LOOKING_SECONDS
        sizes: list[int] = []
        for one in loader_beside(loader, batch_size=None, sampler=keys, collate_fn=sample_size):
            sizes.append(int(one))
            if clock() > ends:
                break
        largest = [key for _, key in heapq.nlargest(size, zip(sizes, keys, strict=False), key=lambda pair: pair[0])]
        chosen = list(itertools.islice(itertools.cycle(largest), size))
        return next(iter(loader_beside(loader, batch_sampler=[chosen], collate_fn=loader.collate_fn)))


class Same:
    """A feed that gives one batch again and again, without waiting."""

    waited = arrived = 0.0

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self.asked = self.arrived = time.perf_counter()  # it is always there

    def next(self) -> Any:
        """Return the batch, without waiting."""
        return self._batch
