"""The contract: the functions and objects, by agreed name, that give a target's model, data, loss and optimizer.

A kind of target is a function that reads a contract from the user's module (`kinds/`). Loop, shape run, inspection,
worst batch and checkpointing use only contracts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from autotune.core.records import CheckLine, OwnFramework
from autotune.errors import TargetError
from autotune.targets.guesses import Unread, loss_line
from autotune.targets.named_arguments import bind
from autotune.targets.tracebacks import definition_line
from autotune.targets.user_errors import blaming

NAMES = {
    "model": "model()",
    "dataset": "dataset()",
    "dataloader": "dataloader(batch_size, num_workers, **loader)",
    "batch": "batch(batch_size)",
    "loss": "loss(model, batch)",
    "optimizer": "optimizer(params)",
    "step": "step(model, batch, optimizers)",
    "clip_grad_norm": "clip_grad_norm = 1.0",
    "find_unused_parameters": "find_unused_parameters = True",
    "scheduler": "scheduler(optimizer)",
    "ema": "ema(model)",
    "collate": "collate(samples)",
    "sampler": "sampler(dataset)",
    "samples": "samples(batch)",
    "validation": "validation()",
    "worst_batch": "worst_batch(batch_size)",
    "setup": "setup()",
    "space": "space()",
    "baseline": "baseline()",
    "global_batch_size": "global_batch_size()",
}
DATA = ("dataset", "dataloader", "batch")
OF_A_STEP = ("step", "clip_grad_norm", "scheduler", "ema")  # parts of an optimizer step besides loss and optimizer
_FUNCTIONS_ONLY = (
    "dataloader", "batch", "loss", "optimizer", "step", "scheduler", "ema", "collate", "samples", "setup",
    "worst_batch",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Contract:
    """The agreed names that one target defines. Its `run` and `make` call the user's functions.

    Raises `TargetError` for a name that must be a function and is none.
    """

    label: str  # the file's or module's name, for messages
    root: Path  # the folder of the user's code
    names: dict[str, Any]
    unread: dict[str, Unread] = field(default_factory=dict)  # by agreed name, for names that `names` lacks
    theirs: dict[str, str] = field(default_factory=dict)  # the user's name by agreed name: "Net.training_step"
    loader: dict[str, Any] = field(default_factory=dict)  # further arguments of a DataLoader that has workers
    framework: OwnFramework = "torch"  # whose arguments the user's own object takes
    notes: tuple[CheckLine, ...] = ()  # about user code that is not run

    def __post_init__(self) -> None:
        for name in _FUNCTIONS_ONLY:
            if name in self.names:
                _check_function(name, self.names[name])

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def make(self, name: str, offered: Mapping[str, Any], *, sole: str = "", spread: tuple[str, ...] = ()) -> Any:
        """Return the part called `name`: the result of its function, or the object itself. Raises `TargetError`."""
        if not is_factory(self.names[name]):
            return self.names[name]
        result = self.run(name, offered, sole=sole, spread=spread)
        if result is None:
            raise TargetError(f"{name}() returned None (did you forget return?)")
        return result

    def run(self, name: str, offered: Mapping[str, Any], *, sole: str = "", spread: tuple[str, ...] = ()) -> Any:
        """Call the function `name` with those of `offered` that it asks for. Raises `TargetError`."""
        function = bind(self.names[name], name, offered, sole=sole, spread=spread)
        with blaming(f"{name}()", self.root):
            return function(**offered)

    def left_out(self, name: str, harm: str, line: str) -> str:
        """Return the error text for a file with a part like `name` under another name; `line` would define it."""
        place, _, builder = self.label.partition(":")
        own = self.unread[name].name
        if builder:
            return (
                f"{place} has {own}, and {builder} does not give it. autotune reads only what that gives, and {harm}. "
                f"Give a dict that has the key {name} as well:  {line}"
            )
        return f"{place} has {own} and no {name}. autotune reads the agreed name only, and {harm}. Write  {line}"

    def line(self, name: str) -> str:
        """Return ` (model.py:12)`, the line on which the user's function of that name begins; empty: there is none."""
        line = definition_line(self.names.get(name))
        return f" ({line})" if line else ""

    @property
    def data(self) -> str:
        """The name among `DATA` that is defined."""
        return next(name for name in DATA if name in self.names)


def is_factory(value: Any) -> bool:
    """Return whether it is to be called; callable modules and datasets are taken as they are."""
    is_object = isinstance(value, torch.nn.Module) or hasattr(type(value), "__getitem__")
    return callable(value) and not is_object


def _check_function(name: str, value: Any) -> None:
    if isinstance(value, torch.nn.Module):
        raise TargetError(
            f"{name} is a {type(value).__name__} object, and autotune calls {NAMES[name]}. A module's arguments are "
            f"not agreed upon. {_module_advice(name, value)}"
        )
    if not callable(value):
        raise TargetError(
            f"{name} is a {type(value).__name__}, and autotune calls {NAMES[name]}. The name is one of those agreed "
            f"upon. Make it a function, or rename it."
        )


def _module_advice(name: str, value: torch.nn.Module) -> str:
    if name != "loss":
        return f"Write a function {NAMES[name]} that calls it."
    return f"Call it criterion, and write  {loss_line(Unread(name='criterion', value=value))}"
