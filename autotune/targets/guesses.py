"""Guesses which parts of a user's file have other names than the agreed ones."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import nn

from autotune.targets.named_arguments import takes

SYNONYMS = {  # spelling distance alone does not find get_model
    "model": ("get_model", "build_model", "make_model", "create_model", "model_fn", "net", "network", "get_net"),
    "dataset": ("get_dataset", "build_dataset", "make_dataset", "train_dataset", "trainset", "train_set", "train_data"),
    "dataloader": ("get_dataloader", "train_dataloader", "train_loader", "trainloader", "get_loader", "loader"),
    "batch": ("get_batch", "make_batch", "random_batch"),
    "loss": ("criterion", "loss_fn", "loss_func", "loss_function", "compute_loss", "calc_loss"),
    "collate": ("collate_fn", "collate_function", "collate_batch", "data_collator", "collator"),
    "optimizer": (
        "optimizers",
        "optimiser",
        "get_optimizer",
        "build_optimizer",
        "make_optimizer",
        "configure_optimizers",
    ),
    "sampler": ("train_sampler", "get_sampler", "make_sampler", "batch_sampler"),
    "validation": ("val_dataset", "valid_dataset", "validation_dataset", "val_set", "valset", "val_data"),
    "baseline": ("batch_size", "BATCH_SIZE"),
}
OPTIONAL = ("loss", "collate", "optimizer", "sampler", "validation", "baseline")


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A part of the user's file that autotune does not read, because its name is not the agreed one."""

    name: str
    value: Any


def nearest(name: str, others: Collection[str]) -> str:
    """Return the name among `others` that probably means the agreed `name`; empty if there is none."""
    known = [other for other in others if other in SYNONYMS[name]]
    near = difflib.get_close_matches(name, others, n=1, cutoff=0.75)
    return next(iter([*known, *near]), "")


def unread(module: ModuleType, names: Collection[str]) -> dict[str, Unread]:
    """Return for each agreed name that `names` lacks the part of the module that it probably means, if any.

    That part may have the agreed name itself, if `names` come from a function of the module.
    """
    found = {}
    for agreed in OPTIONAL:
        meant = [name for name in (agreed, *SYNONYMS[agreed]) if _can_be(agreed, vars(module).get(name))]
        if meant and agreed not in names:
            found[agreed] = Unread(name=meant[0], value=vars(module)[meant[0]])
    return found


def loss_line(criterion: Unread) -> str:
    """Return the line of Python that makes the file's own criterion its loss."""
    name, value = criterion.name, criterion.value
    if takes(value, "model") and takes(value, "batch"):
        return f"loss = {name}"
    has_tensors = isinstance(value, nn.Module) and bool(value.state_dict())  # weights of classes: they move along
    call = f"{name}.to(y.device)" if has_tensors else name
    return f"def loss(model, batch): x, y = batch; return {call}(model(x), y)"


def _can_be(agreed: str, value: Any) -> bool:
    if value is None or inspect.isclass(value) or isinstance(value, ModuleType):
        return False
    if agreed == "baseline":
        return type(value) is int or isinstance(value, Mapping)
    return callable(value) or agreed not in ("loss", "collate", "optimizer")
