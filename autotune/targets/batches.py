"""The parts of a batch: tensors in any nesting of dicts, lists and tuples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from autotune.core.records import BatchLayout

Shape = tuple[int, ...]
MOST_PARTS = 4  # of a list that are described: more are mostly alike
ALWAYS_LOOKED_AT = 64  # batches, at first: shapes that vary do so by then, or rarely
# Between looks after that: one costs 15 us within a step (measured), 10 % of the shortest ones.
BATCH_LOOK_SECONDS = 0.01


def tensors(batch: Any) -> Iterator[torch.Tensor]:
    """All tensors of the batch, depth first."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from tensors(part)
    elif isinstance(batch, list | tuple):
        for part in batch:
            yield from tensors(part)


def are_tensors(batch: Any) -> bool:
    """Whether the batch is a list or tuple of nothing but tensors, as most are."""
    return type(batch) in (list, tuple) and all(type(part) is torch.Tensor for part in batch)


def move(batch: Any, change: Callable[[torch.Tensor], torch.Tensor], device: str) -> Any:
    """The batch with `change` applied to every tensor, in containers of the same types.

    Other objects that have `.to` (graphs, for one) are moved to `device` by that; whatever else stays as it is.
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
    """The dimensions of a tensor or an array, the length of a list or tuple; empty for what has none.

    Of a nested tensor, which has no shape: how many tensors it holds, and their elements.
    """
    if isinstance(part, list | tuple):
        return (len(part),)
    if isinstance(part, torch.Tensor) and part.is_nested:
        return (part.size(0), part.numel())
    return tuple(part.shape) if isinstance(part, torch.Tensor | np.ndarray) else ()


def count_tokens(batch: Any) -> int:
    """Elements of `input_ids`, padding included; 0 if the batch has no such key."""
    if type(batch) in (list, tuple):  # most are, and asking whether it is a mapping takes longer
        return 0
    ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
    return ids.numel() if isinstance(ids, torch.Tensor) else 0


def first_dimension(batch: Any) -> int | None:
    """The size that most parts of the batch have first, of equally many the earlier; None where no part has any.

    A list within the batch is one part: it holds one entry per sample.
    """
    parts = batch if isinstance(batch, list | tuple) else [batch]
    sizes = Counter(shape[0] for shape in map(shape_of, _values(parts)) if shape)
    return sizes.most_common(1)[0][0] if sizes else None


def _values(parts: Iterable[Any]) -> Iterator[Any]:
    """The parts, and in the place of mappings what they hold."""
    for part in parts:
        if isinstance(part, Mapping):
            yield from _values(part.values())
        else:
            yield part


class Shapes:
    """Notices batches that differ in more than their number of samples.

    It looks at all of the first batches and then at one in 10 ms, which is all of them where steps are longer. What is
    missed so is a rare shape in a batch that takes less than 10 ms.
    """

    def __init__(self) -> None:
        self.vary = False
        self._looks, self._next_look = 0, 0.0
        self._first: tuple[int, tuple[Shape, ...]] | None = None  # number of samples, and shapes
        self._whole: dict[int, tuple[Shape, ...]] = {}  # by number of samples

    def note(self, batch: Any, samples: int, now: float) -> None:
        """One batch of that many samples is there; `now`: by a monotonic clock, seconds."""
        if self.vary or now < self._next_look:
            return
        self._looks += 1
        if self._looks >= ALWAYS_LOOKED_AT:
            self._next_look = now + BATCH_LOOK_SECONDS
        whole = tuple(map(shape_of, tensors(batch)))
        self._first = self._first or (samples, whole)
        self.vary = whole != self._whole.setdefault(samples, whole) or not _alike(*self._first, samples, whole)


def _alike(samples: int, shapes: tuple[Shape, ...], others: int, other: tuple[Shape, ...]) -> bool:
    """Whether the number of samples explains what sets the shapes apart: any first dimension, and a share of others."""
    return list(map(len, shapes)) == list(map(len, other)) and all(
        a == b or not dimension or a * others == b * samples
        for one, two in zip(shapes, other, strict=True)
        for dimension, (a, b) in enumerate(zip(one, two, strict=True))
    )


def layout(batch: Any, *, is_unpacked: bool) -> BatchLayout:
    """Return what a training loop has to do with the batch.

    A named tuple is a pair only where the loop unpacks it: a loss of the target's own may ask for its names.
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
    """Dtypes and shapes in words: `(float32 (32, 3, 8, 8), int64 (32,))`."""
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
    """`float32`, without the name of the library."""
    return str(tensor.dtype).removeprefix("torch.")
