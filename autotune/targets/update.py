"""The end of an optimizer step: clipping, the optimizers, the schedule of learning rates, the averaged weights.

    gradients ─► unscaled ─► clipped ─► optimizers ─► scale ─► schedulers ─► averaged weights ─► gradients set to None

`clip_grad_norm`, `scheduler(optimizer)` and `ema(model)` are read here, so that their cost and numerics are measured.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from autotune.errors import TargetError
from autotune.targets.contract import Contract


class Update:
    """Applies gradients, and knows whether the gradient scaler skipped that."""

    is_frozen = False  # True: steps are repeated with learning rates of 0, which no schedule may change

    def __init__(
        self, optimizers: Sequence[Optimizer], scaler: torch.amp.GradScaler, *, clip: float | None = None,
        schedulers: Sequence[LRScheduler] = (), averaged: Any = None, model: Any = None,
    ) -> None:  # fmt: skip
        """`clip`: the largest norm of all gradients together. `averaged`: its `update_parameters(model)` is called."""
        self.optimizers, self.clip, self.schedulers, self.averaged = list(optimizers), clip, list(schedulers), averaged
        self._scaler, self._model = scaler, model
        self._taken: list[Optimizer] = []  # optimizers asked to step since the scale was last read
        self._done: set[int] = set()  # ids of those that stepped
        self._steps_alone = len(self.optimizers) == 1 and clip is None and not (schedulers or averaged is not None)
        # A fused optimizer is always called and skips inside its kernel: only reading the scale shows it, which waits.
        self._scale_tells = any(getattr(one, "_step_supports_amp_scaling", False) for one in self.optimizers)
        if scaler.is_enabled():  # without one no step is skipped, and a hook would slow every step
            for one in self.optimizers:
                one.register_step_post_hook(lambda stepped, *_: self._done.add(id(stepped)))

    def __call__(self) -> bool:
        """Step all optimizers; return False if that was skipped because of gradients that are not finite."""
        if self._steps_alone and not self._scaler.is_enabled():
            self.optimizers[0].step()
            self.optimizers[0].zero_grad(set_to_none=True)
            return True
        self.take(self.optimizers)
        is_done = self.rescale()
        if is_done:
            self.follow(self.optimizers)
        for one in self.optimizers:
            one.zero_grad(set_to_none=True)
        return is_done

    def take(self, optimizers: Sequence[Optimizer]) -> None:
        """Clip the gradients of these optimizers together, and step them."""
        if self.clip is not None:
            for one in optimizers:
                self._scaler.unscale_(one)
            parameters = [each for one in optimizers for group in one.param_groups for each in group["params"]]
            nn.utils.clip_grad_norm_(parameters, self.clip)
        for one in optimizers:
            self._scaler.step(one)
        self._taken += optimizers

    def rescale(self) -> bool:
        """Choose the loss scale of the next step; return whether all optimizers that were to step did."""
        taken, done = {id(one) for one in self._taken}, self._done
        self._taken, self._done = [], set()
        if not self._scaler.is_enabled():
            return True
        before = self._scaler.get_scale() if self._scale_tells else 0.0
        self._scaler.update()
        return taken <= done and (not self._scale_tells or self._scaler.get_scale() >= before)

    def follow(self, optimizers: Sequence[Optimizer]) -> None:
        """Step the schedules of optimizers that stepped, and average the weights."""
        for one in () if self.is_frozen else self.schedulers:
            # A schedule of a fixed length raises after its end, and a probe may take more steps than the user's run.
            is_over = one.last_epoch >= getattr(one, "total_steps", math.inf) - 1
            if not is_over and any(one.optimizer is each for each in optimizers):
                one.step()
        if self.averaged is not None:
            self.averaged.update_parameters(self._model)


def update_maker(contract: Contract, model: Any, offered: Mapping[str, Any]) -> Callable[..., Update]:
    """Return what makes the update of optimizers with a scaler, as the file says. Raises `TargetError`."""
    clip = _clip(contract)

    def make(optimizers: Sequence[Optimizer], scaler: torch.amp.GradScaler) -> Update:
        schedulers = _schedulers(contract, optimizers, offered)
        averaged = _averaged(contract, model, offered)
        return Update(optimizers, scaler, clip=clip, schedulers=schedulers, averaged=averaged, model=model)

    return make


def _clip(contract: Contract) -> float | None:
    if "clip_grad_norm" not in contract:
        return None
    value = contract.make("clip_grad_norm", {})
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= sys.float_info.max:
        raise TargetError(
            f"clip_grad_norm is {repr(value)[:60]}. It is the largest norm of the gradients, handed to "
            f"torch.nn.utils.clip_grad_norm_ in every step. Write a number above 0, such as clip_grad_norm = 1.0."
        )
    return float(value)


def _schedulers(contract: Contract, optimizers: Sequence[Optimizer], offered: Mapping[str, Any]) -> list[LRScheduler]:
    if "scheduler" not in contract:
        return []
    one = {"optimizer": optimizers[0]} if len(optimizers) == 1 else {}
    made = contract.make("scheduler", {**offered, **one, "optimizers": list(optimizers)}, sole="optimizer" * len(one))
    schedulers = list(made) if isinstance(made, list | tuple) else [made]
    for scheduler in schedulers:
        if isinstance(scheduler, ReduceLROnPlateau):
            raise TargetError(
                "scheduler() returned a ReduceLROnPlateau. It follows a metric of your evaluation, which a probe does "
                "not have, and costs a step nothing. Leave scheduler() out."
            )
        if not isinstance(scheduler, LRScheduler):
            raise TargetError(
                f"scheduler() returned a {type(scheduler).__name__}. It is stepped after every optimizer step. Return "
                f"one of torch.optim.lr_scheduler, or a list of them; leave out what is stepped once per epoch."
            )
        if not any(scheduler.optimizer is one for one in optimizers):
            raise TargetError(
                f"scheduler() returned a {type(scheduler).__name__} of another optimizer than optimizer() returned. "
                f"It probably makes one of its own. Use the one that it is given: scheduler(optimizer)."
            )
    return schedulers


def _averaged(contract: Contract, model: Any, offered: Mapping[str, Any]) -> Any:
    if "ema" not in contract:
        return None
    averaged = contract.make("ema", {**offered, "model": model}, sole="model")
    if not callable(getattr(averaged, "update_parameters", None)):
        raise TargetError(
            f"ema() returned a {type(averaged).__name__}, which has no update_parameters(model). That is called after "
            f"every optimizer step. Return a torch.optim.swa_utils.AveragedModel, or an object with that method."
        )
    if averaged is model:
        raise TargetError(
            "ema() returned the model itself. Averaged weights are a copy, and would be trained else. Return "
            "torch.optim.swa_utils.AveragedModel(model)."
        )
    return averaged
