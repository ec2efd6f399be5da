"""The losses that a program computes, unscaled, and the precisions of its autocasts."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor


class Losses:
    """The losses that gradient scalers were given, and the precisions of autocast."""

    def __init__(self) -> None:
        self.precisions: set[str] = set()  # of autocasts entered with gradients on
        self.replacements: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
            (torch.amp.GradScaler, "scale", self._scaling),
            (torch.amp.autocast_mode.autocast, "__enter__", self._casting),
        )
        self._scaled: tuple[Any, Tensor] = (lambda: None, torch.empty(0))  # a scaled loss, weakly, and the loss

    def of(self, tensors: Any) -> Tensor:
        """Return the loss of a backward pass from `tensors`."""
        tensor = tensors if isinstance(tensors, Tensor) else tensors[0]
        scaled, loss = self._scaled
        share = loss if scaled() is tensor else tensor.detach()
        return share if share.dim() == 0 else share.float().mean()

    def _scaling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            result = original(scaler, outputs)
            if isinstance(outputs, Tensor):
                self._scaled = weakref.ref(result), outputs.detach()
            return result

        return scale

    def _casting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def enter(context: Any) -> Any:
            result = original(context)
            if context._enabled and torch.is_grad_enabled():
                self.precisions.add(str(context.fast_dtype).removeprefix("torch."))
            return result

        return enter
