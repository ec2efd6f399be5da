"""The inputs of the first forward pass of a model that learns."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from autotune.knobs.wording import IMAGE_DIMENSIONS
from autotune.targets.batches import first_dimension, tensors


@dataclass(frozen=True, kw_only=True)
class FirstPass:
    """The model of that pass, and what is known of its inputs; both are unset before the pass."""

    model: Callable[[], nn.Module | None] = lambda: None  # a weak reference
    samples: int | None = None
    channels_last: bool | None = None  # whether image inputs are channels_last; None: no input shows it

    @classmethod
    def of(cls, model: nn.Module, inputs: list[Any], asked: int | None) -> Self:
        """Return the first pass with `inputs`, where a micro-batch of `asked` samples was asked for."""
        formats = is_channels_last(tensors(inputs))
        return cls(model=weakref.ref(model), samples=_samples_of(inputs, asked), channels_last=formats)


def is_channels_last(candidates: Iterable[Tensor]) -> bool | None:
    """Return whether most tensors that have exactly one of the two image formats are channels_last; None: no such."""
    images = [one for one in candidates if one.dim() == IMAGE_DIMENSIONS]
    found = [one.is_contiguous(memory_format=torch.channels_last) for one in images]
    told = [last for one, last in zip(images, found, strict=True) if last != one.is_contiguous()]
    return sum(told) * 2 > len(told) if told else None


def _samples_of(inputs: list[Any], asked: int | None) -> int | None:
    """Return the first dimension, or the second if it is the number of samples asked for in all tensors.

    The second is for recurrent networks, which take (time, samples) and no DataLoader.
    """
    first, shapes = first_dimension(inputs), [one.shape for one in tensors(inputs)]
    is_second = asked != first and shapes and all(len(shape) > 1 and shape[1] == asked for shape in shapes)
    return asked if is_second else first
