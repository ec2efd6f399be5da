"""The plain kind of target: a file or module of functions with agreed names, or the dict that one of them returns."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

from autotune.errors import TargetError
from autotune.targets.contract import DATA, NAMES, Contract
from autotune.targets.guesses import SYNONYMS, nearest, unread
from autotune.targets.loaded import Loaded


def read(loaded: Loaded, offered: Mapping[str, Any]) -> Contract:
    """Return the contract of any target: this kind is tried last. Raises `TargetError`, which names missing parts."""
    names = loaded.names if loaded.is_whole_module else _built_names(loaded.value, loaded.label)
    if "model" not in names and loaded.is_whole_module:
        raise TargetError(_no_model(loaded.module, loaded.label))
    if "model" not in names:
        raise TargetError(
            f"{loaded.label} has no model. Add the key model: an nn.Module, or a function that returns one."
        )
    present = [name for name in DATA if name in names]
    if not present:
        raise TargetError(_no_data(loaded.label, _public(loaded.module) if loaded.is_whole_module else ()))
    if len(present) > 1:
        raise TargetError(
            f"{loaded.label} has {' and '.join(present)}. Training data come from exactly one of {', '.join(DATA)}. "
            f"Rename or delete the others."
        )
    return Contract(label=loaded.label, root=loaded.root, names=names, unread=unread(loaded.module, names))


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
    return tuple(
        name
        for name, value in vars(module).items()
        if not (name.startswith("_") or isinstance(value, ModuleType) or inspect.isclass(value))
        and not (inspect.isfunction(value) and value.__module__ != module.__name__)
    )
