"""Repeats a few steps from one state on the same batches, to see whether losses or weights differ.

What is kept is what training goes on from: weights, buffers, gradients, optimizers, schedules, averaged weights, and
what is drawn by chance. Not covered: what the user's code keeps between steps. Where that reaches the loss, two runs
without any change differ already, and nothing can be said.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from autotune.profile.records import REPLAYED_STEPS
from autotune.targets.base import Step
from autotune.targets.chance import keep_chance
from autotune.targets.loop import Training


class StepsGiven(NamedTuple):
    """The result of some steps: their losses, and a checksum of all weights and buffers after them."""

    losses: tuple[bytes, ...]
    weights: int  # those that are averaged, too
    are_finite: bool  # the losses: others are alike whatever is done


class Replay:
    """Repeats steps from a kept state; each `yield` is one step."""

    def __init__(self, training: Training) -> None:
        assert training.feed is not None, "steps have been taken"
        self._training, self._feed = training, training.feed
        self._batches = list[Any]()
        self._back: Callable[[], None] = lambda: None

    def keep(self) -> None:
        """Keep the next batches, and the state of the training."""
        count = REPLAYED_STEPS * self._training.plan.micro_batches_per_step
        self._batches = [copy.deepcopy(self._feed.unused()) for _ in range(count)]
        self._back = _state_of(self._training)

    def again(self) -> Generator[None, Step, StepsGiven]:
        """Take the steps from the state that was kept, and return what they gave."""
        self._back()
        losses, are_finite = list[bytes](), True
        with self._feed.giving(iter(copy.deepcopy(self._batches))):
            for _ in range(REPLAYED_STEPS):
                step = yield
                losses.append(_bytes_of(step.loss))
                are_finite &= bool(step.loss.isfinite())
        held = _held(self._training)
        weights = zlib.crc32(b"".join(zlib.crc32(_bytes_of(one)).to_bytes(4) for one in held))
        return StepsGiven(tuple(losses), weights, are_finite)


def _bytes_of(tensor: Tensor) -> bytes:
    found = tensor.detach()
    if found.layout is not torch.strided:
        found = found.to_dense()
    array: Any = found.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return bytes(array.data)


def _held(training: Training) -> list[Tensor]:
    """Return the weights and buffers of the model, and those that are averaged."""
    averaged = training.update.averaged if training.update else None
    modules = (training.model, averaged) if isinstance(averaged, torch.nn.Module) else (training.model,)
    return [one for module in modules for one in (*module.parameters(), *module.buffers())]


def _state_of(training: Training) -> Callable[[], None]:
    """Return a function that restores the training's present state."""
    update, model = training.update, training.model
    assert update is not None, "steps have been taken"
    held = _held(training)
    values = [one.detach().clone() for one in held]
    gradients = [(one, None if one.grad is None else one.grad.clone()) for one in model.parameters()]
    holders: list[Any] = [*update.optimizers, *update.schedulers]
    states = [copy.deepcopy(one.state_dict()) for one in holders]
    chance = keep_chance(training.plan.device)

    def back() -> None:
        with torch.no_grad():
            for one, value in zip(held, values, strict=True):
                one.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = None if gradient is None else gradient.clone()
        for holder, state in zip(holders, states, strict=True):
            holder.load_state_dict(copy.deepcopy(state))  # optimizers keep the tensors that they are given
        chance()

    return back
