"""Detects recomputed activations: whether a training calls `torch.utils.checkpoint`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.utils import checkpoint

_WITHOUT_REENTRANT = "_checkpoint_without_reentrant_generator"
if hasattr(checkpoint, f"{_WITHOUT_REENTRANT}_impl"):  # since torch 2.14, which no longer calls the other
    _WITHOUT_REENTRANT += "_impl"


class Recomputed:
    """Replacements in both implementations of `checkpoint` (torch 2.8 to 2.14), which programs import by name."""

    def __init__(self) -> None:
        self._was_called = False
        self.replacements: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
            (checkpoint, _WITHOUT_REENTRANT, self._calling),
            (checkpoint.CheckpointFunction, "apply", self._calling),
        )

    @property
    def seen(self) -> bool | None:
        """Whether activations were recomputed; None: unknown, because compiled code may do so unseen."""
        return True if self._was_called else None if _has_compiled() else False

    def _calling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(*arguments: Any, **named: Any) -> Any:
            self._was_called |= torch.is_grad_enabled()
            return original(*arguments, **named)

        return call


def _has_compiled() -> bool:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"])
