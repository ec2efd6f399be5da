"""The inputs of the first forward pass of a model that learns."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from autotune.knobs.wording import IMAGE_DIMENSIONS
from autotune.targets.batches import first_dimension, part_shapes, tensors


@dataclass(frozen=True, kw_only=True)
class FirstPass:
    """The model of that pass, and what is known of its inputs; both are unset before the pass."""

    model: Callable[[], nn.Module | None] = lambda: None  # a weak reference
    samples: int | None = None
    guessed_from: tuple[int, ...] | None = None  # the shape that `samples` are the first dimension of; None: no guess
    channels_last: bool | None = None  # whether image inputs are channels_last; None: no input shows it

    @classmethod
    def of(cls, model: nn.Module, inputs: list[Any], asked: int | None) -> Self:
        """Return the first pass with `inputs`, where a micro-batch of `asked` samples was asked for."""
        samples = _samples_of(inputs, asked)
        return cls(
            model=weakref.ref(model),
            samples=samples,
            guessed_from=None if samples == asked and not _is_vector(inputs) else _shape_of(inputs, samples),
            channels_last=is_channels_last(tensors(inputs)),
        )


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


def _shape_of(inputs: list[Any], samples: int | None) -> tuple[int, ...] | None:
    return next((one for one in part_shapes(inputs) if one[0] == samples), None)


def _is_vector(inputs: list[Any]) -> bool:
    """Return whether there are only vectors of numbers, each probably one sample; one of indices has many."""
    found = list(tensors(inputs))
    return bool(found) and all(one.dim() == 1 and one.is_floating_point() for one in found)
