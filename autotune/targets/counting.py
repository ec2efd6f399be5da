"""Counts the samples in a batch, if the target makes its batches itself and has no `samples(batch)`.

The dimension that has the batch size asked for is that of the samples. It need not be the first: time steps, or the
nodes of graphs, may come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autotune.errors import TargetError
from autotune.targets.batches import Shape, describe, shape_of

Place = tuple[tuple[Any, ...], int]  # the keys that lead to a part of the batch, and one of its dimensions


class OwnBatches:
    """Counts the samples of batches from the target's own `dataloader()` or `batch()`, called for `batch_size` samples.

    Without counting, a loader that ignores the batch size would make all batch sizes look equal, and the global batch
    wrong. Where several dimensions have the size asked for (as many time steps as samples, say), a short batch tells
    them apart: most parts of a batch are cut by samples, and no batch holds more than were asked for. `is_told`: the
    function takes the size asked for, so that batches of two sizes distinguish the dimension of samples from one that
    fits by chance (`confirm`). If not, the first dimension of every part must fit. Not covered: objects that cannot be
    looked into, a single part of fewer samples than were asked for (the dataset has no more) with as many features, and
    a short batch with equally many parts of either kind, of which the earlier dimension is counted.
    """

    def __init__(self, name: str, batch_size: int, *, is_told: bool = True) -> None:
        self._name, self._batch_size, self.is_told = name, batch_size, is_told
        self._places: list[Place] | None = None  # dimensions that may be the samples'; None: no batch was seen yet
        self.can_be_seen = True  # the batch has dimensions to look at
        self._parts: set[tuple[Any, ...]] = set()  # of the first batch, by the keys that lead to them

    @property
    def is_plain(self) -> bool:
        """Whether the first dimension of every part, and no other dimension, has the size asked for."""
        places = self._places or []
        parts = {keys for keys, _ in places}
        return self.can_be_seen and parts == self._parts and all(dimension == 0 for _, dimension in places)

    @property
    def fits_every_part(self) -> bool:
        """Whether the batch has parts, and each of them a dimension of the size asked for."""
        return bool(self._parts) and {keys for keys, _ in self._places or []} == self._parts

    def __call__(self, batch: Any) -> int:
        """Return the number of samples in `batch`. Raises `TargetError` if no dimension can be the samples'."""
        if self._places is None:
            self._parts = set(dict(_shapes(batch, self._batch_size)))
            self._places = self._fitting(batch)
            self.can_be_seen = bool(self._parts or self._places)
        if self._is_whole(batch) or (not self.can_be_seen and self.is_told):
            return self._batch_size
        sizes = self._sizes(batch)
        if not sizes:  # the batch has another structure than those before
            self._places += self._fitting(batch)
            sizes = self._sizes(batch)
        self._places = [place for place in self._places if sizes.get(place, 0) <= self._batch_size]
        possible = {place: sizes[place] for place in self._places if place in sizes}
        if not possible:
            raise self._refusal(describe(batch))
        return _shared_most(possible)

    def _is_whole(self, batch: Any) -> bool:
        """Return whether every place has the size asked for, as in most batches. Fast, because each step calls it."""
        try:
            for keys, dimension in self._places or ():
                part = batch
                for key in keys:
                    part = part[key]
                if part.shape[dimension] != self._batch_size:
                    return False
        except (LookupError, TypeError, AttributeError):  # the batch has another structure, or is a list
            return False
        return bool(self._places)

    def confirm(self, batch: Any, batch_size: int) -> None:
        """Keep the dimensions that changed with the size: `batch` has another one. Raises `TargetError` if none did."""
        sizes = self._sizes(batch)
        if not sizes:  # the batch has another structure
            return
        self._places = [place for place, size in sizes.items() if size == batch_size]
        if not self._places:
            raise self._refusal(f"{describe(batch)} when asked for {batch_size}")

    def explanation(self, batch: Any) -> str:
        """Return in words how samples are counted: `32 in a batch, by dimension 1 of float32 (64, 32, 8)`."""
        count = f"{self(batch):,} in a batch"
        if not self._places:
            return f"{count}, taken from the batch size that was asked for: the batch cannot be looked into"
        keys, dimension = min(self._places, key=lambda place: place[1])
        part = _part(batch, keys)
        is_list = isinstance(part, list | tuple)
        return f"{count}, by {'the length of a list' if is_list else f'dimension {dimension} of {describe(part)}'}"

    def _fitting(self, batch: Any) -> list[Place]:
        """Return the places where the batch has the size asked for; its own length counts only if no part has it."""
        shapes = dict(_shapes(batch, self._batch_size))
        first = {shape[0] for shape in shapes.values()}
        if not self.is_told:
            return [(keys, 0) for keys in shapes] if first == {self._batch_size} else []
        places = [
            (keys, dimension)
            for keys, shape in shapes.items()
            for dimension, size in enumerate(shape)
            if size == self._batch_size
        ]
        if len(first) == 1 and len({keys for keys, _ in places}) < len(shapes):
            places = []  # only some parts fit, and all have another common size: features that fit by chance
        is_list = isinstance(batch, list | tuple) and len(batch) == self._batch_size
        return places or ([((), 0)] if is_list else [])

    def _sizes(self, batch: Any) -> dict[Place, int]:
        found = ((place, _size(batch, place)) for place in self._places or ())
        return {place: size for place, size in found if size is not None}

    def _refusal(self, given: str) -> TargetError:
        todo = "Make it use its" if self.is_told else "Give it an"
        return TargetError(
            f"{self._name}() was asked for batches of {self._batch_size} samples and gave {given}. It probably has a "
            f"batch size of its own, which could be neither tuned nor held, or no more samples. {todo} "
            f"argument batch_size, or write samples(batch) if no dimension is that of the samples."
        )


def _shapes(batch: Any, batch_size: int, keys: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Shape]]:
    """Yield the parts that have dimensions, with the keys that lead to them.

    A list of `batch_size` entries inside the batch has one entry per sample, and is itself a part of that length.
    """
    if isinstance(batch, Mapping):
        entries: Iterable[tuple[Any, Any]] = batch.items()
    elif isinstance(batch, list | tuple) and (not keys or len(batch) != batch_size):
        entries = enumerate(batch)
    else:
        if shape := shape_of(batch):
            yield keys, shape
        return
    for key, part in entries:
        yield from _shapes(part, batch_size, (*keys, key))


def _size(batch: Any, place: Place) -> int | None:
    """Return the size of the batch at that place; None if it has no such part."""
    keys, dimension = place
    try:
        shape = shape_of(_part(batch, keys))
    except (LookupError, TypeError):
        return None
    return shape[dimension] if dimension < len(shape) else None


def _part(batch: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        batch = batch[key]
    return batch


def _shared_most(sizes: Mapping[Place, int]) -> int:
    """Return the most common size of the batch's parts; of equally common ones that of the earlier dimension."""

    def weight(size: int) -> tuple[int, int]:
        places = [place for place, of_place in sizes.items() if of_place == size]
        return len({keys for keys, _ in places}), -min(dimension for _, dimension in places)

    return max(dict.fromkeys(sizes.values()), key=weight)
