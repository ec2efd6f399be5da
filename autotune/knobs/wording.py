"""A knob's value in the terms of a framework: arguments where it has a name for it, code where not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

IMAGE_DIMENSIONS = 4  # (batch, channels, height, width): the only rank that has the memory format channels_last


class Framework(StrEnum):
    """The frameworks that values are exported to."""

    TORCH = "torch"  # a hand-written loop
    HUGGING_FACE = "hf"  # transformers.Trainer
    LIGHTNING = "lightning"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"
    TORCHTITAN = "torchtitan"


@dataclass(frozen=True, kw_only=True)
class Wording:
    """One value in a framework's terms. Options of the loader and accumulation are in the plan already.

    Statements are Python about the name `model`.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the framework's own object
    setup: tuple[str, ...] = ()  # statements before the model exists
    model: tuple[str, ...] = ()  # statements about `model`, before the optimizer is made
    images: tuple[str, ...] = ()  # methods of every tensor of a batch that has IMAGE_DIMENSIONS
    context: str = ""  # expression of a context manager around forward pass and loss
    scaler: bool = False  # whether gradients need a scaler that the framework does not have


NOTHING = Wording()
