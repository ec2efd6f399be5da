"""A step of the user's own: `step(model, batch, optimizers)`, for training with more than one loss or update.

    def step(model, batch, optimizers):
        critic, actor = optimizers            # in the order of optimizer()
        loss = ...                            # forward passes as usual, under the autocast that is tried
        critic.backward(loss)                 # instead of loss.backward(): scaled where the dtype needs it
        critic.step()                         # unscaled, clipped to clip_grad_norm, stepped
        critic.zero_grad()
        ...                                   # the same for the other
        return loss.detach()                  # one scalar that tells how training goes

It takes one batch and makes all the optimizer steps that belong to it, one or more. When it is called, the model is in
training mode and the batch is on the device. When it has returned, schedulers (each if its optimizer stepped) and
averaged weights follow. Accumulation is 1, because it is unknown how the losses of several micro-batches add up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from autotune.errors import TargetError
from autotune.knobs.base import Plan
from autotune.targets.contract import NAMES, Contract
from autotune.targets.loss import checked_loss
from autotune.targets.named_arguments import bind
from autotune.targets.update import Update

ELSE = "What a step cannot say runs as a command: autotune search -- python train.py."


class StepOptimizer:
    """An optimizer as `step` gets it: torch's optimizer with a method `backward`; other attributes are torch's."""

    def __init__(self, optimizer: Optimizer, owner: OwnStep) -> None:
        self._optimizer, self._owner = optimizer, owner

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Compute the gradients of `loss`, outside of autocast; `options` are those of `torch.Tensor.backward`."""
        self._owner.backward(self._optimizer, loss, options)

    def step(self) -> None:
        """Clip the gradients of this optimizer's parameters, and step it."""
        self._owner.take(self._optimizer)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, as in torch."""
        self._optimizer.zero_grad(set_to_none=set_to_none)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


class OwnStep:
    """Calls `step`, and treats its optimizers as our loop treats one: scaling, clipping, schedules."""

    def __init__(self, contract: Contract, model: Any, plan: Plan, offered: Mapping[str, Any]) -> None:
        advice = f"It is called {NAMES['step']}: write these three arguments, or rename it if it is something else."
        self._function = bind(contract.names["step"], "step", {*offered, "model", "batch", "optimizers"}, advice=advice)
        self._offered = {**offered, "model": model}
        self._update: Update | None = None
        self._scaler = torch.amp.GradScaler(enabled=False)
        self._fresh: set[int] = set()  # optimizers with gradients that no step has used
        self._taken: list[Optimizer] = []  # optimizers that stepped in this call
        self._is_whole = True  # no step of this call was skipped
        kind = plan.device.partition(":")[0]
        has_context = bool(plan.forward_contexts)
        self._outside: Callable[[], AbstractContextManager[Any]] = (
            (lambda: torch.autocast(kind, enabled=False)) if has_context else nullcontext
        )
        if plan.accumulation_steps > 1:
            raise TargetError(
                f"gradient_accumulation_steps is {plan.accumulation_steps}, and {contract.label} has step(). It "
                f"takes its optimizer steps for each batch. Leave accumulation at 1, with a larger batch_size."
            )

    def begin(self, update: Update, scaler: torch.amp.GradScaler) -> None:
        """Take over the optimizers, once they are made."""
        self._update, self._scaler = update, scaler
        self._offered["optimizers"] = [StepOptimizer(one, self) for one in update.optimizers]

    def __call__(self, batch: Any) -> Tensor:
        """Call the user's step on one batch; return the loss that it returns. Raises `TargetError`."""
        self._taken, self._is_whole = [], True
        value = self._function(**self._offered, batch=batch)
        if not self._taken:
            raise TargetError(
                f"step() stepped no optimizer. Without a step nothing is trained, and no rate is known. Call "
                f"optimizer.backward(loss) and optimizer.step() of at least one in every call. {ELSE}"
            )
        return checked_loss(value, training=False, function="step()").detach()

    def end(self) -> bool:
        """Choose the next loss scale, step schedules and averages; return False if a step was skipped."""
        assert self._update is not None, "begun"
        self._is_whole &= self._update.rescale()
        if self._is_whole:
            self._update.follow(self._taken)
        return self._is_whole

    def backward(self, optimizer: Optimizer, loss: Any, options: Mapping[str, Any]) -> None:
        """Scale the loss and compute its gradients outside of autocast, for `StepOptimizer.backward`."""
        assert self._update is not None, "begun"
        if not isinstance(loss, Tensor) or not loss.requires_grad:
            raise TargetError(
                f"backward() in step() was given a {type(loss).__name__} without a gradient. It was probably "
                f"detached, or made a number by .item() or float(). Give it the loss itself."
            )
        if self._scaler.is_enabled() and any(optimizer is one for one in self._taken):
            self._is_whole &= self._update.rescale()  # a scaler allows each optimizer one step between two updates
        with self._outside():
            scaled: Any = self._scaler.scale(loss)
            scaled.backward(**options)
        self._fresh = set(map(id, self._update.optimizers))

    def take(self, optimizer: Optimizer) -> None:
        """Clip the optimizer's gradients, and step it. Raises `TargetError` if it has no new gradients."""
        assert self._update is not None, "begun"
        if id(optimizer) not in self._fresh:
            raise TargetError(
                f"{type(optimizer).__name__} was stepped in step() without a backward pass since its last step. "
                f"loss.backward() was probably called, which no scaler sees, or it was stepped twice. Call "
                f"optimizer.backward(loss) before every optimizer.step()."
            )
        self._fresh.discard(id(optimizer))
        with self._outside():
            self._update.take([optimizer])
        if torch.is_autocast_cache_enabled():  # autocast's converted weights are out of date
            torch.clear_autocast_cache()
        self._taken.append(optimizer)
