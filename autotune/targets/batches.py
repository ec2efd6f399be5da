"""The parts of a batch: tensors in any nesting of dicts, lists and tuples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from autotune.core.records import BatchLayout

Shape = tuple[int, ...]
MOST_PARTS = 4  # of a list that are described: further ones are mostly alike
ALWAYS_LOOKED_AT = 64  # first batches: shapes that vary do so by then, or rarely
# Seconds between looks after that: a look takes 15 us within a step (measured), 10 % of the shortest steps.
BATCH_LOOK_SECONDS = 0.01


def tensors(batch: Any) -> Iterator[torch.Tensor]:
    """Yield all tensors of the batch, depth first."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from tensors(part)
    elif isinstance(batch, list | tuple):
        for part in batch:
            yield from tensors(part)


def are_tensors(batch: Any) -> bool:
    """Return whether the batch is a list or tuple of tensors only, as most are."""
    return type(batch) in (list, tuple) and all(type(part) is torch.Tensor for part in batch)


def move(batch: Any, change: Callable[[torch.Tensor], torch.Tensor], device: str) -> Any:
    """Return the batch with `change` applied to every tensor, in containers of the same types.

    Other objects that have a method `to` (graphs, for example) are moved to `device` by it; all else stays unchanged.
    """
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, list | tuple):
        parts = [change(part) if isinstance(part, torch.Tensor) else move(part, change, device) for part in batch]
        if type(batch) is list:
            return parts
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if isinstance(batch, Mapping):
        moved = {key: move(part, change, device) for key, part in batch.items()}
        return moved if type(batch) is dict else type(batch)(moved)  # type: ignore[call-arg]  # any mapping of HF
    return batch.to(device) if hasattr(batch, "to") else batch


def shape_of(part: Any) -> Shape:
    """Return the dimensions of a tensor or an array, or the length of a list or tuple; empty for other objects.

    For a nested tensor, which has no shape, return the number of its tensors and of their elements.
    """
    if isinstance(part, list | tuple):
        return (len(part),)
    if isinstance(part, torch.Tensor) and part.is_nested:
        return (part.size(0), part.numel())
    return tuple(part.shape) if isinstance(part, torch.Tensor | np.ndarray) else ()


def count_tokens(batch: Any) -> int:
    """Return the number of elements of `input_ids`, padding included; 0 if the batch has no such key."""
    if type(batch) in (list, tuple):  # most batches are, and a check for a mapping takes longer
        return 0
    ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
    return ids.numel() if isinstance(ids, torch.Tensor) else 0


def first_dimension(batch: Any) -> int | None:
    """Return the most common first dimension of the batch's parts; of equally common ones the earlier; None: none."""
    sizes = Counter(shape[0] for shape in part_shapes(batch))
    return sizes.most_common(1)[0][0] if sizes else None


def part_shapes(batch: Any) -> list[Shape]:
    """Return the shapes of the batch's parts that have one.

    A list within the batch is one part: it holds one entry per sample.
    """
    parts = batch if isinstance(batch, list | tuple) else [batch]
    return [shape for shape in map(shape_of, _values(parts)) if shape]


def has_dimension(batch: Any, size: int) -> bool:
    """Return whether the batch has tensors, and each of them a dimension of that size, whichever it is."""
    shapes = [one.shape for one in tensors(batch)]
    return bool(shapes) and all(size in shape for shape in shapes)


def _values(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield the parts, and in the place of mappings their values."""
    for part in parts:
        if isinstance(part, Mapping):
            yield from _values(part.values())
        else:
            yield part


class Shapes:
    """Notices batches that differ in more than their number of samples.

    It looks at all of the first batches, and then at one batch in 10 ms, which is every batch if steps are longer. Not
    covered: a rare shape among batches that take less than 10 ms each.
    """

    def __init__(self) -> None:
        self.vary = False
        self._looks, self._next_look = 0, 0.0
        self._first: tuple[int, tuple[Shape, ...]] | None = None  # number of samples, and shapes
        self._whole: dict[int, tuple[Shape, ...]] = {}  # by number of samples

    def note(self, batch: Any, samples: int, now: float) -> None:
        """Look at one batch of `samples` samples; `now` is the seconds of a monotonic clock."""
        if self.vary or now < self._next_look:
            return
        self._looks += 1
        if self._looks >= ALWAYS_LOOKED_AT:
            self._next_look = now + BATCH_LOOK_SECONDS
        whole = tuple(map(shape_of, tensors(batch)))
        self._first = self._first or (samples, whole)
        self.vary = whole != self._whole.setdefault(samples, whole) or not _alike(*self._first, samples, whole)


def _alike(samples: int, shapes: tuple[Shape, ...], others: int, other: tuple[Shape, ...]) -> bool:
    """Return whether the number of samples explains all differences: in first or proportional dimensions."""
    return list(map(len, shapes)) == list(map(len, other)) and all(
        a == b or not dimension or a * others == b * samples
        for one, two in zip(shapes, other, strict=True)
        for dimension, (a, b) in enumerate(zip(one, two, strict=True))
    )


def layout(batch: Any, *, is_unpacked: bool) -> BatchLayout:
    """Return how a training loop hands the batch to the model.

    A named tuple is a pair only if the loop unpacks it: a loss of the target's own may use its field names.
    """
    if isinstance(batch, torch.Tensor):
        return "tensor"
    if isinstance(batch, Mapping):
        return "dict"
    if not isinstance(batch, list | tuple):
        return "other"
    if hasattr(batch, "_fields") and not is_unpacked:
        return "tuple"
    return "pair" if len(batch) == 2 and all(isinstance(part, torch.Tensor) for part in batch) else "tuple"


def describe(batch: Any) -> str:
    """Return dtypes and shapes in words: `(float32 (32, 3, 8, 8), int64 (32,))`."""
    if isinstance(batch, torch.Tensor | np.ndarray):
        return f"{dtype_name(batch)} {shape_of(batch)}"
    if isinstance(batch, Mapping):
        return "{" + ", ".join(f"{key}: {describe(part)}" for key, part in batch.items()) + "}"
    if isinstance(batch, list | tuple):
        parts = [describe(part) for part in batch[:MOST_PARTS]]
        more = len(batch) - len(parts)
        return "(" + ", ".join(parts) + (f", and {more} more" if more else "") + ")"
    return type(batch).__name__


def dtype_name(tensor: torch.Tensor | np.ndarray) -> str:
    """Return the name of the tensor's dtype without that of the library: `float32`."""
    return str(tensor.dtype).removeprefix("torch.")
