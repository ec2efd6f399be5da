"""The optimizers that a script makes, and the parameters of those that step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any
from weakref import WeakSet

from torch import Tensor
from torch.optim import Optimizer

from autotune.errors import TargetError
from autotune.targets.commands.watching import unseen_parts
from autotune.targets.commands.watching.main_thread import Guest
from autotune.targets.commands.watching.stepping_optimizers import trained_by
from autotune.targets.commands.watching.trained_parameters import Trained


class MadeOptimizers:
    """The optimizers made so far, and what those that stepped were seen to train."""

    def __init__(self, label: str, guest: Guest, transforms: Sequence[Callable[[Any], Any]]) -> None:
        """`transforms` change the model in place as soon as it has an optimizer."""
        self.are_made = False
        self.with_gradient: set[int] = set()  # identities of parameters that had a gradient after a step
        self.replacements: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = ((Optimizer, "__init__", self._making),)
        self._parameters: dict[int, Tensor] = {}  # by identity
        self._made: WeakSet[Optimizer] = WeakSet()
        self._stepped: WeakSet[Optimizer] = WeakSet()
        self._label, self._guest, self._process, self._transforms = label, guest, os.getpid(), list(transforms)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The parameters that the optimizers train, of those that stepped."""
        return tuple(self._parameters.values())

    @property
    def are_awaited(self) -> bool:
        """Whether some have not stepped yet: in a GAN, the generator's steps after the discriminator's."""
        return not self._made <= self._stepped

    def note_step(self, optimizer: Optimizer) -> None:
        """Note the end of a step: with a closure, as Lightning's, gradients are computed within the step."""
        if optimizer not in self._stepped:
            self._stepped.add(optimizer)
            self.note(trained_by(optimizer))

    def note(self, parameters: Iterable[Tensor]) -> None:
        """Note trained parameters, and which of them have a gradient now."""
        for one in parameters:
            self._parameters[id(one)] = one
            if one.grad is not None:
                self.with_gradient.add(id(one))

    def _making(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def make(optimizer: Optimizer, *arguments: Any, **named: Any) -> None:
            original(optimizer, *arguments, **named)
            self.are_made = True
            self._made.add(optimizer)
            if self._transforms and not (self._guest.is_over or os.getpid() != self._process):
                model = Trained.of(optimizer).model()
                if model is None:
                    self._guest.leave(TargetError(unseen_parts.NO_MODULE.format(self._label)))
                while self._transforms:
                    self._transforms.pop(0)(model)

        return make
