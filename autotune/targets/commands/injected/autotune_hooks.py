"""Hooks in modules as they are imported: in a watched program, in processes that it starts, and by `autotune run`.

`sitecustomize.py` beside it imports it as `autotune_hooks`: only the standard library is imported here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

ARGUMENTS_VARIABLE = "_AUTOTUNE_TRAINING_ARGUMENTS"  # environment variable: values for TrainingArguments, as JSON
ARGUMENTS_MODULE = "transformers.training_args"  # the module that defines TrainingArguments (transformers 4 and 5)


class Finder:
    """A finder that asks the other finders for one module, and calls a function with it when it is first imported."""

    def __init__(self, watched: str, then: Callable[[ModuleType], object]) -> None:
        self._watched, self._then = watched, then

    def find_spec(self, name: str, _path: object = None, _target: object = None, /) -> ModuleSpec | None:
        """Return the spec that the other finders give, with the call added to its loader; None for other modules."""
        if name != self._watched:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_call(module: ModuleType) -> None:
            run(module)
            with suppress(Exception):
                self._then(module)

        spec.loader.exec_module = run_and_call  # type: ignore[method-assign]  # of this one loader
        return spec


def change_arguments(module: Any, changes: Callable[[Any], Mapping[str, Any]]) -> Callable[[], None]:
    """Make `changes`, called with each new TrainingArguments (or subclass) object, return values to replace in it.

    Names that the object lacks are left out. Return a function that undoes this.
    """
    made, original = module.TrainingArguments, module.TrainingArguments.__post_init__

    def change(arguments: Any) -> None:
        named = changes(arguments)
        vars(arguments).update({name: value for name, value in named.items() if hasattr(arguments, name)})
        original(arguments)

    made.__post_init__ = change
    return lambda: setattr(made, "__post_init__", original)


def change_as_environment_says(module: ModuleType) -> None:
    """Replace the values of TrainingArguments in `module` that the environment variable names, if it is set."""
    values = json.loads(os.environ[ARGUMENTS_VARIABLE])
    change_arguments(module, lambda _: values)
