"""How a knob's value is said in the words of frameworks: arguments where they have a name for it, code where not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

IMAGE_DIMENSIONS = 4  # (batch, channels, height, width): the only rank that has the memory format channels_last


class Framework(StrEnum):
    """Whose words."""

    TORCH = "torch"  # a loop of one's own
    HUGGING_FACE = "hf"  # transformers.Trainer
    LIGHTNING = "lightning"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"


@dataclass(frozen=True, kw_only=True)
class Wording:
    """One value in a framework's words. Options of the loader and accumulation stand in the plan already.

    Statements are Python about a name that the reader has, `model`.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the framework's own object
    setup: tuple[str, ...] = ()  # statements before there is a model
    model: tuple[str, ...] = ()  # statements about `model`, before the optimizer is made
    images: tuple[str, ...] = ()  # methods of every tensor of a batch that has IMAGE_DIMENSIONS
    context: str = ""  # expression of a context manager around forward pass and loss
    scaler: bool = False  # whether gradients need a scaler that the framework does not bring


NOTHING = Wording()
