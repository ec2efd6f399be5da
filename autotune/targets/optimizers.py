"""The optimizers of a target: those that `optimizer(params)` returns, or a usual default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from autotune.errors import TargetError
from autotune.targets.contract import Contract

Optimizers = Callable[[Any], list[Optimizer]]  # from the first batch, whose form decides the default
_EXAMPLE = "such as torch.optim.AdamW(params)"


def default_optimizer(parameters: list[torch.nn.Parameter], batch: Any) -> Optimizer:
    """Return a usual optimizer: AdamW for dictionaries (language models), SGD with momentum for the rest.

    The choice matters because AdamW keeps two numbers for every parameter and momentum one. Learning rates are low
    enough for most models to learn and not to diverge, because divergence would count against the configuration.
    """
    if isinstance(batch, Mapping):
        return torch.optim.AdamW(parameters, lr=1e-4)
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def optimizers_maker(contract: Contract, model: torch.nn.Module, offered: Mapping[str, Any]) -> Optimizers:
    """Return the optimizers of `model`: one, or several that all follow the loss. Raises `TargetError`."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if "optimizer" not in contract:
        return lambda batch: [default_optimizer(parameters, batch)]
    made = contract.make("optimizer", {**offered, "params": parameters, "model": model}, sole="params")
    optimizers = list(made) if isinstance(made, list | tuple) else [made]
    _check_kind(made, optimizers)
    _check_parameters(optimizers, set(map(id, model.parameters())))
    return lambda batch: optimizers


def _check_kind(made: Any, optimizers: list[Any]) -> None:
    others = [type(one).__name__ for one in optimizers if not isinstance(one, Optimizer)]
    if optimizers and not others:
        return
    kind = type(made).__name__
    parts = f" with {' and '.join(dict.fromkeys(others))} in it" if others and isinstance(made, list | tuple) else ""
    raise TargetError(
        f"optimizer() returned a {kind}{parts}. autotune steps optimizers of torch.optim, and a schedule has a "
        f"function of its own, scheduler(optimizer). Return one torch.optim.Optimizer, {_EXAMPLE}, or a list of them."
    )


def _check_parameters(optimizers: list[Optimizer], known: set[int]) -> None:
    """Raise `TargetError` for an optimizer without a parameter of the model, or with one of another optimizer."""
    seen: set[int] = set()
    for number, optimizer in enumerate(optimizers, 1):
        own = {id(each) for group in optimizer.param_groups for each in group["params"]}
        name = type(optimizer).__name__ + (f" (number {number})" if len(optimizers) > 1 else "")
        if not own & known:
            raise TargetError(
                f"optimizer() returned {name} with no parameter of the model that model() returned. It probably has "
                f"those of another model, which would be trained elsewhere or not at all. Make it from what it is "
                f"given: optimizer(params) or optimizer(model)."
            )
        if own & seen:
            raise TargetError(
                f"optimizer() returned {name} with parameters that another of them has too. Each of these would be "
                f"stepped twice. Give every parameter to one optimizer."
            )
        seen |= own
