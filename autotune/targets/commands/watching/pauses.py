"""Detects evaluations and checkpoints between two steps of a training, which are not part of a step.

    step ─► model.eval() ── no_grad, another loader ──► model.train(), or the next batch to train on ─► step
    step ─► torch.save ──► step

A pause in every step belongs to the step: for example, an accuracy that is computed after each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

OWN_SHARE = 0.5  # of the trained parameters: eval() of a module with less, such as a frozen layer, begins no evaluation


class Pauses:
    """The pauses of one training: their seconds since its last step."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None  # the thread that trains
        self.parameters: Sequence[Tensor] = ()  # the trained ones; empty before the first step
        self._began: float | None = None
        self._is_saving = False
        self._seconds = 0.0  # of pauses since the last step
        self._was_in_last_step = False

    @property
    def replacements(self) -> tuple[tuple[Any, str, Callable[[Any], Any]], ...]:
        """Return the functions to replace while the program runs: owner, name, and maker of the replacement."""
        files = [import_module("safetensors.torch")] if find_spec("safetensors") else []
        return (
            (nn.Module, "eval", self._evaluating),
            (nn.Module, "train", self._training),
            (torch, "save", self._saving),
            *((module, "save_file", self._saving) for module in files),
        )

    def take(self) -> float:
        """Return the seconds since the last step that are no part of a step."""
        seconds, self._seconds = self._seconds, 0.0
        is_usual, self._was_in_last_step = self._was_in_last_step, seconds > 0
        return 0.0 if is_usual else seconds

    def end(self) -> None:
        """End a running evaluation, if there is one, and add its seconds to the pauses."""
        if self._began is not None and not self._is_saving and self._is_here:
            self._seconds += self._now() - self._began
            self._began = None

    def cancel(self) -> None:
        """Forget the running evaluation: the model trains in evaluation mode."""
        self._began = None

    @property
    def _is_here(self) -> bool:
        return threading.current_thread() is self.thread

    def _begin(self) -> bool:
        """Begin a pause; return False if one is running already."""
        if self._began is not None or not self.parameters or not self._is_here:
            return False
        self._began = self._now()
        return True

    def _now(self) -> float:
        """Return the seconds of the host's clock, once the device has done all issued work."""
        if self.parameters[0].device.type != "cpu":
            torch.accelerator.synchronize(self.parameters[0].device)
        return time.perf_counter()

    def _evaluating(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @wraps(original)
        def evaluate(module: nn.Module) -> Any:
            if self._began is None and self._is_own(module):
                self._begin()
            return original(module)

        return evaluate

    def _training(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def train(module: nn.Module, mode: bool = True) -> Any:
            if mode and self._began is not None and self._is_own(module):
                self.end()
            return original(module, mode)

        return train

    def _saving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def save(*arguments: Any, **named: Any) -> Any:
            if not self._begin():
                return original(*arguments, **named)
            self._is_saving = True
            try:
                return original(*arguments, **named)
            finally:
                self._is_saving = False
                self.end()

        return save

    def _is_own(self, module: nn.Module) -> bool:
        if not self.parameters:
            return False
        wanted = set(map(id, self.parameters))
        return sum(id(one) in wanted for one in module.parameters()) > OWN_SHARE * len(wanted)
