"""What a batch is made of: tensors in any nesting of dicts, lists and tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

MOST_PARTS = 4  # of a list that are described: more are mostly alike


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


def move(batch: Any, change: Callable[[torch.Tensor], torch.Tensor], device: str) -> Any:
    """The batch with `change` applied to every tensor, in containers of the same types.

    Other objects that have `.to` (graphs, for one) are moved to `device` by that; whatever else stays as it is.
    """
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        moved = {key: move(part, change, device) for key, part in batch.items()}
        return moved if type(batch) is dict else type(batch)(moved)  # type: ignore[call-arg]  # any mapping of HF
    if isinstance(batch, list | tuple):
        parts = [move(part, change, device) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch.to(device) if hasattr(batch, "to") else batch


def count_samples(batch: Any, otherwise: int) -> int:
    """The first dimension of the first tensor that has one; `otherwise` if there is none to be seen."""
    return next((tensor.shape[0] for tensor in tensors(batch) if tensor.dim()), otherwise)


def count_tokens(batch: Any) -> list[int]:
    """Elements of `input_ids`, padding included, as a list of one; empty if the batch has no such key."""
    ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
    return [ids.numel()] if isinstance(ids, torch.Tensor) else []


class Shapes:
    """Notices batches that differ in more than their number of samples. A few microseconds a batch."""

    def __init__(self) -> None:
        self.vary = False
        self._apart_from_first: tuple[torch.Size, ...] | None = None
        self._whole: dict[int, tuple[torch.Size, ...]] = {}  # by number of samples

    def note(self, batch: Any, samples: int) -> None:
        """Look at one batch of that many samples."""
        if self.vary:
            return
        whole = tuple(tensor.shape for tensor in tensors(batch))
        rest = tuple(shape[1:] for shape in whole)
        self._apart_from_first = self._apart_from_first or rest
        self.vary = rest != self._apart_from_first or whole != self._whole.setdefault(samples, whole)


def describe(batch: Any) -> str:
    """Dtypes and shapes in words: `(float32 (32, 3, 8, 8), int64 (32,))`."""
    if isinstance(batch, torch.Tensor):
        return f"{dtype_name(batch)} {tuple(batch.shape)}"
    if isinstance(batch, Mapping):
        return "{" + ", ".join(f"{key}: {describe(part)}" for key, part in batch.items()) + "}"
    if isinstance(batch, list | tuple):
        parts = [describe(part) for part in batch[:MOST_PARTS]]
        more = len(batch) - len(parts)
        return "(" + ", ".join(parts) + (f", and {more} more" if more else "") + ")"
    return type(batch).__name__


def dtype_name(tensor: torch.Tensor) -> str:
    """`float32`, without the name of the library."""
    return str(tensor.dtype).removeprefix("torch.")
