"""Batches of any size as tensors with shapes and no contents, made from two small real ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.records import Value

FAKE_SIZES = (2, 3)  # of the real batches: a dimension that grows from one to the other grows with the batch


class CannotPredict(Exception):
    """The memory of this target cannot be predicted; `reason` says why."""

    def __init__(self, code: Code, **numbers: Value) -> None:
        """Take the reason as a code and its numbers."""
        self.reason = notice(code, **numbers)
        super().__init__(self.reason.text)


class ShapesVary(CannotPredict):
    """The two batches differ in more than their number of samples."""


@dataclass(frozen=True, kw_only=True)
class Rebatched:
    """Two real batches of `FAKE_SIZES` samples, from which fake batches of any size are made."""

    smaller: Any
    larger: Any

    @property
    def alike(self) -> bool:
        """Whether the shapes of the two batches differ only by the number of samples."""
        try:
            self.of(FAKE_SIZES[-1], FakeTensorMode())
        except ShapesVary:
            return False
        return True

    def of(self, size: int, mode: FakeTensorMode) -> Any:
        """Return a batch of `size` samples: every dimension is extrapolated from the smaller batch and the larger one.

        A dimension may be any multiple of the batch (samples times tokens, flattened), also plus one (offsets). Raises
        `CannotPredict`; `ShapesVary` if shapes differ in more than the batch.
        """
        return _grown(self.smaller, self.larger, size, mode)


def _grown(one: Any, other: Any, size: int, mode: FakeTensorMode) -> Any:
    if type(one) is not type(other):
        raise CannotPredict(Code.BATCHES_MIXED, first=type(one).__name__, second=type(other).__name__)
    if isinstance(one, torch.Tensor):
        if one.layout is not torch.strided:
            raise CannotPredict(Code.BATCHES_SPARSE)
        if one.dim() != other.dim():
            raise ShapesVary(Code.DIMENSIONS_VARY)
        shape = [_line(a, b, size) for a, b in zip(one.shape, other.shape, strict=True)]
        with mode:
            return torch.empty(shape, dtype=one.dtype, device=one.device)
    if isinstance(one, Mapping):
        grown = {key: _grown(part, other[key], size, mode) for key, part in one.items()}
        return grown if type(one) is dict else type(one)(grown)  # type: ignore[call-arg]  # any mapping of HF
    if isinstance(one, list | tuple):
        parts = _parts(one, other, size, mode)
        return type(one)(*parts) if hasattr(one, "_fields") else type(one)(parts)
    if hasattr(one, "to"):
        raise CannotPredict(Code.BATCH_SIZE_UNKNOWN, content=type(one).__name__)
    return one


def _parts(one: Any, other: Any, size: int, mode: FakeTensorMode) -> list[Any]:
    """Return the parts of a list: one per sample if the list has an entry per sample, else as many as it has."""
    if (len(one), len(other)) == FAKE_SIZES:
        return [_grown(one[-1], other[-1], size, mode) for _ in range(size)]
    if len(one) != len(other):
        raise ShapesVary(Code.LENGTH_VARIES, first=len(one), second=len(other))
    return [_grown(a, b, size, mode) for a, b in zip(one, other, strict=True)]


def _line(smaller: int, larger: int, size: int) -> int:
    """Return the size of a dimension that is `smaller` and `larger` in the two batches, which differ by one sample."""
    per_sample = larger - smaller
    rest = smaller - per_sample * FAKE_SIZES[0]
    if per_sample and not (per_sample > 0 and rest in (0, 1)):
        raise ShapesVary(Code.SHAPES_VARY)
    return per_sample * size + rest if per_sample else smaller
