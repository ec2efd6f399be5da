"""A target that was imported and not yet read: from it the kind of target is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from autotune.targets import importing
from autotune.targets.contract import NAMES, is_factory
from autotune.targets.named_arguments import bind
from autotune.targets.reference import TargetPlace
from autotune.targets.user_errors import blaming


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The user's module, and the object in it that was named as the target."""

    label: str  # the file's or module's name, with that of the attribute, for messages
    root: Path  # the folder of the user's code
    module: ModuleType
    value: Any  # result of the function after the colon, or the object of that name; else the module itself

    @property
    def is_whole_module(self) -> bool:
        """Whether the module itself was named, and no object in it."""
        return self.value is self.module

    @property
    def names(self) -> dict[str, Any]:
        """The agreed names that it defines; empty if the value is neither module nor dict."""
        values = vars(self.value) if self.is_whole_module else self.value if isinstance(self.value, Mapping) else {}
        return {name: value for name, value in values.items() if name in NAMES and not isinstance(value, ModuleType)}


def picked(module: ModuleType, reference: TargetPlace, offered: Mapping[str, Any]) -> Loaded:
    """Return the target that `reference` names; a function or class is called, with the `offered` that it asks for.

    Raises `TargetError`.
    """
    root, name = importing.root_of(reference), reference.attribute
    if not name:
        return Loaded(label=reference.label, root=root, module=module, value=module)
    value = importing.pick(module, name, reference.label)
    if is_factory(value):
        with blaming(f"{name}()", root):
            value = bind(value, name, offered)(**offered)
    return Loaded(label=f"{reference.label}:{name}", root=root, module=module, value=value)
