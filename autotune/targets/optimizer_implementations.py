"""How optimizers of torch.optim compute an update: one parameter after another, in lists (foreach), or fused.

Each optimizer reads this from its parameter groups at every step, so it can be changed in an existing optimizer, which
schedules and Trainers keep. The state is the same for all; step counters move to the device for `fused`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from autotune.knobs.optimizer_implementations import ARGUMENTS, FOR_LOOP, FOREACH, FUSED, LEFT_TO_TORCH, OPTIONS

_SCALES = "_step_supports_amp_scaling"  # a GradScaler gives its factor to an optimizer with this attribute: a fused one
_CHECKS = "_need_device_dtype_check_for_fused"  # SGD and Adagrad check the device before the first fused step


def said_implementation(optimizers: Iterable[Optimizer]) -> str | None:
    """Return the implementation that all groups of these optimizers set, or that they leave the choice to torch.

    None if they differ, or none has a choice.
    """
    found = {_said(group) for one in optimizers for group in one.param_groups if "foreach" in group}
    return found.pop() if len(found) == 1 else None


def usual(optimizers: Iterable[Optimizer]) -> str:
    """Return torch's own choice: foreach if all parameters are on a device with foreach kernels."""
    groups = (group for one in optimizers for group in one.param_groups)
    kinds = {parameter.device.type for group in groups for parameter in group["params"]}
    return FOREACH if kinds <= {"cuda", "xpu"} else FOR_LOOP  # torch 2.13, `_default_to_fused_or_foreach`


def possible_implementations(optimizers: Sequence[Optimizer]) -> tuple[str, ...]:
    """Return the implementations that all of these optimizers have for the device of their parameters.

    Optimizers without a choice (no option `foreach`) are ignored; empty if all are. Each implementation is tried on a
    parameter of one element: torch refuses it if it has no kernel for the class, the device or an option.
    """
    choosing = [one for one in optimizers if _has_choice(one)]
    return tuple(name for name in OPTIONS if choosing and all(_can(one, name) for one in choosing))


def choose(optimizers: Iterable[Optimizer], options: Mapping[str, Any]) -> None:
    """Set these of `ARGUMENTS` in every optimizer that has a choice; with no `options` do nothing.

    The optimizer's state stays valid.
    """
    for one in optimizers if options else ():
        if not _has_choice(one):
            continue
        for group in (one.defaults, *one.param_groups):
            group.update({name: options.get(name) for name in ARGUMENTS if name in group})
        setattr(one, _SCALES, bool(options.get("fused")))
        setattr(one, _CHECKS, True)
        if one.state:  # fused kernels count steps on the device: loading the state moves the counters there
            one.load_state_dict(one.state_dict())


def _said(group: Mapping[str, Any]) -> str:
    foreach, fused = group["foreach"], group.get("fused")
    if fused or foreach:
        return FUSED if fused else FOREACH
    return LEFT_TO_TORCH if foreach is None and fused is None else FOR_LOOP


def _has_choice(optimizer: Optimizer) -> bool:
    """Return whether its groups have the option, and its `step` is torch's own, which reads them."""
    theirs = _class_of_torch(optimizer)
    unchanged = inspect.unwrap(type(optimizer).step) is inspect.unwrap(theirs.step)
    groups = optimizer.param_groups
    return unchanged and all("foreach" in group and not group.get("differentiable") for group in groups)


def _class_of_torch(optimizer: Optimizer) -> type[Optimizer]:
    """Return the first of its classes that torch.optim defines."""
    return next(one for one in type(optimizer).__mro__ if one.__module__.startswith("torch.optim."))


def _can(optimizer: Optimizer, name: str) -> bool:
    return all(_can_group(optimizer, group, name) for group in optimizer.param_groups)


def _can_group(optimizer: Optimizer, group: Mapping[str, Any], name: str) -> bool:
    parameters = [one for one in group["params"] if isinstance(one, torch.Tensor)]
    if not OPTIONS[name].keys() <= group.keys():
        return False
    if any(type(one) not in (torch.Tensor, torch.nn.Parameter) or not one.is_floating_point() for one in parameters):
        return False
    theirs: Any = _class_of_torch(optimizer)
    options: dict[str, Any] = {key: value for key, value in group.items() if key in _asked(theirs)}
    options |= {key: OPTIONS[name].get(key) for key in ARGUMENTS if key in group}
    try:
        for kind, dtype in {(one.device, one.dtype) for one in parameters}:
            tried = torch.nn.Parameter(torch.zeros(1, device=kind, dtype=dtype))
            tried.grad = torch.zeros_like(tried)
            theirs([tried], **options).step()
    except (RuntimeError, ValueError, NotImplementedError):
        return False
    return True


def _asked(kind: type[Optimizer]) -> set[str]:
    return set(inspect.signature(kind).parameters) - {"params"}
