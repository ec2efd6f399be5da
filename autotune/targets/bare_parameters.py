"""The names of parameters that no module has, such as a temperature that is trained together with a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from torch import Tensor
from torch.optim.optimizer import Optimizer

from autotune.targets.tracebacks import is_users


def bare_name(parameter: Tensor, optimizer: Optimizer, namespaces: Iterable[Mapping[str, Any]]) -> str:
    """Return `temperature (parameter 7 of Adam, shape (7,))`, counted from 1; without a variable, what is in brackets.

    The variable, or the attribute of an object of the user's, is looked for in the namespaces, in their order.
    """
    every = [id(one) for group in optimizer.param_groups for one in group["params"]]
    place = f"parameter {every.index(id(parameter)) + 1} of {type(optimizer).__name__}, shape {tuple(parameter.shape)}"
    name = next((name for each in namespaces for name in _names(parameter, each)), "")
    return f"{name} ({place})" if name else place


def namespaces_of(frame: FrameType | None) -> Iterator[Mapping[str, Any]]:
    """Yield the variables of the user's functions and modules that `frame` was called from, innermost first."""
    while frame is not None:
        if is_users(Path(frame.f_code.co_filename)):
            yield frame.f_locals
            yield frame.f_globals
        frame = frame.f_back


def _names(parameter: Tensor, namespace: Mapping[str, Any]) -> Iterator[str]:
    for name, value in namespace.items():
        if value is parameter:
            yield name
        elif type(value).__module__ == namespace.get("__name__", "__main__"):  # an object of a class of that file
            yield from (f"{name}.{key}" for key, one in getattr(value, "__dict__", {}).items() if one is parameter)
