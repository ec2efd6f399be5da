"""Finds the parameters that an optimizer trains, and the model that has them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn
from torch.optim import Optimizer

from autotune.targets.batches import dtype_name
from autotune.targets.commands.watching.first_pass import is_channels_last
from autotune.targets.live_modules import live_modules, outermost, unwrapped

MOST_VAIN_STEPS = 50  # in a row without a gradient: then the optimizer does not use gradients
_HALVES = ("bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The model and the parameters that a step is about to change."""

    parameters: tuple[Tensor, ...] = ()
    precisions: frozenset[str] = frozenset()  # dtypes of parameters below float32
    device: str = ""
    channels_last: bool | None = None  # whether weights are channels_last; None: no weight shows it

    @classmethod
    def of(cls, optimizer: Optimizer) -> Self:
        """Return the trained ones of the optimizer's parameters, and their model, as they are before the step."""
        return cls.among(one for group in optimizer.param_groups for one in group["params"])

    @classmethod
    def among(cls, candidates: Iterable[Tensor]) -> Self:
        """Return the trained ones of `candidates`: those that require a gradient."""
        parameters = tuple(one for one in candidates if one.requires_grad)
        return cls(
            parameters=parameters,
            precisions=frozenset(name for one in parameters if (name := dtype_name(one)) in _HALVES),
            device=str(parameters[0].device) if parameters else "",
            channels_last=is_channels_last(parameters),
        )

    def model(self) -> nn.Module | None:
        """Return the outermost module that has the most of the parameters; None if they are in none."""
        return next(iter(modules_with(self.parameters)), None)


def modules_with(parameters: Collection[Tensor]) -> list[nn.Module]:
    """Return the fewest outermost modules that together have the parameters, as far as modules have them.

    That with the most of them comes first.
    """
    order = {id(one): number for number, one in enumerate(parameters)}
    own = [(one, order.keys() & set(map(id, one.parameters()))) for one in outermost(live_modules())]
    found = list[nn.Module]()
    while own := [(one, left) for one, keys in own if (left := keys & order.keys())]:
        best, taken = max(own, key=lambda each: (len(each[1]), -min(map(order.__getitem__, each[1]))))
        found.append(unwrapped(best))
        order = {key: number for key, number in order.items() if key not in taken}
    return found


class VainSteps:
    """Steps that change nothing, because no parameter has a gradient: Lightning's if `training_step` returns None."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def has(self, optimizer: Optimizer, backwards: int) -> bool:
        """Return whether the ending step, after `backwards` backward passes, is one; False after many such in a row."""
        parameters = (one for group in optimizer.param_groups for one in group["params"])
        is_vain = not backwards and all(one.grad is None for one in parameters)
        self._in_a_row = self._in_a_row + 1 if is_vain else 0
        return is_vain and self._in_a_row <= MOST_VAIN_STEPS


def is_inner_step(optimizer: Optimizer) -> bool:
    """Return whether this hook call is for a base class's `step`, which the class's own `step` called.

    Then one step is reported twice. To be called by the hook, which torch's wrapper of `step` calls (torch 2.13,
    `Optimizer.profile_hook_step`).
    """
    wrapper = sys._getframe(2)
    code, frame = wrapper.f_code, wrapper.f_back
    while frame is not None:
        if frame.f_code is code and frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back
    return False
