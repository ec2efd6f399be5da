"""The agreed names: what a user's file may define, and what is wrong with one that does not fit."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from autotune.errors import TargetError
from autotune.targets import importing
from autotune.targets.arguments import bind
from autotune.targets.guesses import SYNONYMS, Unread, loss_line, nearest, unread
from autotune.targets.reference import Reference
from autotune.targets.user_errors import blaming

NAMES = {
    "model": "model()",
    "dataset": "dataset()",
    "dataloader": "dataloader(batch_size, num_workers, **loader)",
    "batch": "batch(batch_size)",
    "loss": "loss(model, batch)",
    "optimizer": "optimizer(params)",
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
_FUNCTIONS_ONLY = ("dataloader", "batch", "loss", "optimizer", "collate", "samples", "setup", "worst_batch")


@dataclass(frozen=True, kw_only=True)
class Contract:
    """The agreed names that one target defines. Fits the rules; nothing in it has been called yet."""

    label: str  # the file's or module's name, for messages
    root: Path  # the folder of the user's code
    names: dict[str, Any]
    unread: dict[str, Unread] = field(default_factory=dict)  # by agreed name, which `names` lacks

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def make(self, name: str, offered: Mapping[str, Any], *, sole: str = "", spread: tuple[str, ...] = ()) -> Any:
        """What `name` stands for: what its function returns, or the object itself. Raises `TargetError`."""
        if not _is_factory(self.names[name]):
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
        """What is wrong with a file that has something like `name` where it is not read; `line` would define it."""
        place, _, builder = self.label.partition(":")
        own = self.unread[name].name
        if builder:
            return (
                f"{place} has {own}, and {builder} does not give it. autotune reads only what that gives, and {harm}. "
                f"Give a dict that has the key {name} as well:  {line}"
            )
        return f"{place} has {own} and no {name}. autotune reads the agreed name only, and {harm}. Write  {line}"

    @property
    def data(self) -> str:
        """The one of `DATA` that is defined."""
        return next(name for name in DATA if name in self.names)


def load(reference: Reference, offered: Mapping[str, Any]) -> Contract:
    """Import the target and read its contract. `offered` are the arguments for a builder named after the colon."""
    module = importing.load(reference)
    root = importing.root_of(reference)
    if not reference.attribute:
        names = {name: value for name, value in vars(module).items() if name in NAMES and not _is_module(value)}
        if "model" not in names:
            raise TargetError(_no_model(module, reference.label))
        contract = read(names, reference.label, root, _public(module))
        return replace(contract, unread=unread(module, names))
    label = f"{reference.label}:{reference.attribute}"
    built = importing.pick(module, reference.attribute, reference.label)
    if _is_factory(built):
        with blaming(f"{reference.attribute}()", root):
            built = bind(built, reference.attribute, offered)(**offered)
    contract = read(_built_names(built, label), label, root, ())
    return replace(contract, unread=unread(module, contract.names))


def read(names: dict[str, Any], label: str, root: Path, others: tuple[str, ...]) -> Contract:
    """Check the names against each other. `others` are what else the file defines, to guess what was meant."""
    if "model" not in names:
        raise TargetError(f"{label} has no model. Add the key model: an nn.Module, or a function that returns one.")
    present = [name for name in DATA if name in names]
    if not present:
        raise TargetError(_no_data(label, others))
    if len(present) > 1:
        raise TargetError(
            f"{label} has {' and '.join(present)}. Training data come from exactly one of {', '.join(DATA)}. "
            f"Rename or delete the others."
        )
    for name in _FUNCTIONS_ONLY:
        if name in names:
            _check_function(name, names[name])
    return Contract(label=label, root=root, names=names)


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


def _built_names(built: Any, label: str) -> dict[str, Any]:
    if isinstance(built, tuple) and len(built) == 2:
        return {"model": built[0], "dataset": built[1]}
    if not isinstance(built, Mapping):
        found = f"a tuple of {len(built)} items" if isinstance(built, tuple) else type(built).__name__
        forgotten = " (did you forget return?)" if built is None else ""
        raise TargetError(f"{label} gave {found}{forgotten}: return (model, dataset) or a dict of the agreed names.")
    for name in built:
        if name not in NAMES:
            known = [agreed for agreed, synonyms in SYNONYMS.items() if name in synonyms]
            near = known or difflib.get_close_matches(str(name), NAMES, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Use only {', '.join(NAMES)}."
            raise TargetError(f"{label} gave the unknown name {name!r}. Only the agreed names are read. {hint}")
    return dict(built)


def _no_model(module: ModuleType, label: str) -> str:
    meant = nearest("model", _public(module))
    if meant:
        return f"{label} has no model. Did you mean {meant} → model?"
    classes = [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, torch.nn.Module) and value.__module__ == module.__name__
    ]
    if classes:
        return f"{label} has no model. Found nn.Module class {classes[-1]}: add  def model(): return {classes[-1]}()"
    return f"{label} has no model. autotune looks for that name. Add  def model(): return <your nn.Module>"


def _no_data(label: str, others: tuple[str, ...]) -> str:
    for name in DATA:
        meant = nearest(name, others)
        if meant:
            return f"{label} has a model but no data. Did you mean {meant} → {NAMES[name]}?"
    return (
        f"{label} has a model but no data: add dataset() (tunes workers too) or batch(batch_size) (synthetic), "
        f"or {NAMES['dataloader']} for a loader of your own."
    )


def _public(module: ModuleType) -> tuple[str, ...]:
    """Names of the functions and objects that the module made itself."""
    return tuple(
        name
        for name, value in vars(module).items()
        if not (name.startswith("_") or _is_module(value) or inspect.isclass(value))
        and not (inspect.isfunction(value) and value.__module__ != module.__name__)
    )


def _is_module(value: Any) -> bool:
    return isinstance(value, ModuleType)  # `import model` is no model


def _is_factory(value: Any) -> bool:
    """Called for what it returns; modules and data sets that happen to be callable are taken as they are."""
    is_object = isinstance(value, torch.nn.Module) or hasattr(type(value), "__getitem__")
    return callable(value) and not is_object
