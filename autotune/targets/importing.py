"""Imports the user's file or module, and notices a script that would train while it is being imported."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from autotune.errors import TargetError
from autotune.targets import variables
from autotune.targets.installed import is_installed
from autotune.targets.reference import TargetPlace
from autotune.targets.user_errors import blaming

_BEFORE_ANY_TARGET: set[str] = set()  # names of the modules that were imported before the first target
_LOADED: list[TargetPlace] = []  # loaded in this process
_INSTALLED = {Path(place) for kind, place in sysconfig.get_paths().items() if kind.endswith("lib")}
_STAND_IN = "autotune_target"  # module name for a file whose own name is taken by an imported module


def load(reference: TargetPlace) -> ModuleType:
    """Return the imported module. Its file's folder (for a module the working folder) goes first on `sys.path`.

    User code that an earlier call imported is run anew: otherwise a model that is an object of a module would still
    have the state and hooks of the earlier training. Not covered: such an object in code that cannot be run twice (for
    example, it registers an operator): then only the target's own file is run anew. Raises `TargetError` if it cannot
    be imported, ends the process, or takes an optimizer step.
    """
    root = root_of(reference)
    forgotten = _forget_code_below(root) if _LOADED else {}
    if not _BEFORE_ANY_TARGET:
        remember_modules()
    _LOADED.append(reference)
    if sys.path[:1] != [str(root)]:
        sys.path.insert(0, str(root))
    with blaming(f"import of {reference.label}", root), as_a_script(reference.label), _without_training(reference):
        try:
            module = _imported(reference, root)
        except Exception:  # the user's code may raise anything
            if not forgotten:
                raise
            sys.modules.update(forgotten)
            module = _imported(reference, root)
    variables.check()
    return module


def _imported(reference: TargetPlace, root: Path) -> ModuleType:
    return _from_file(reference.file) if reference.file else _from_module(reference.module, root)


def root_of(reference: TargetPlace) -> Path:
    """Return the folder whose files count as the user's code."""
    return reference.file.parent if reference.file else Path.cwd()


def pick(module: ModuleType, name: str, label: str) -> Any:
    """Return the object called `name` in the module. Raises `TargetError`, which names the nearest existing name."""
    if hasattr(module, name):
        return getattr(module, name)
    near = difflib.get_close_matches(name, [own for own in vars(module) if not own.startswith("_")], n=1)
    advice = f"Did you mean {label}:{near[0]}?" if near else f"Write a function {name}() that returns (model, dataset)."
    raise TargetError(f"{label} has no {name}. The name after the colon is looked up in the module. {advice}")


def remember_modules() -> None:
    """Note all modules that are imported now: they are not the user's.

    A fork server does it for its probes: reading thousands of names copies as many pages of a forked process (30 ms
    where transformers is imported).
    """
    _BEFORE_ANY_TARGET.update(sys.modules)


def _forget_code_below(root: Path) -> dict[str, ModuleType]:
    """Remove the user's modules from `sys.modules`, and return them by name."""
    names = [name for name in set(sys.modules) - _BEFORE_ANY_TARGET if _is_users(sys.modules[name], root)]
    return {name: sys.modules.pop(name) for name in names}


def _is_users(module: ModuleType, root: Path) -> bool:
    file = Path(getattr(module, "__file__", None) or "/")
    return (
        file.is_relative_to(root)
        and not is_installed(file)
        and not any(file.is_relative_to(place) for place in _INSTALLED)
        and not module.__name__.startswith("autotune.")
    )


def _from_file(path: Path) -> ModuleType:
    """Return the file's module, run anew under its own name, by which workers started by `spawn` find it, too."""
    known = sys.modules.get(path.stem)
    taken = known is not None and getattr(known, "__file__", None) != str(path)
    name = _STAND_IN if taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # only for suffixes that Python does not know
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        if "relative import" not in str(error):
            raise
        raise TargetError(
            f"{path.name} uses a relative import: {error}. A file on its own belongs to no package. "
            f"Name the module instead, from the folder above its package: {path.parent.name}.{path.stem}."
        ) from error
    return module


def _from_module(name: str, root: Path) -> ModuleType:
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists; one that it imports does not
        raise TargetError(
            f"There is no module {name}: {error.name} was not found. Modules are looked up from {root} and among the "
            f"installed packages. Go to the folder above it, or name the file: {name.replace('.', '/')}.py."
        ) from error


@contextmanager
def as_a_script(label: str, meanwhile: str = "being imported") -> Iterator[None]:
    """Set `sys.argv` to the target's name until the end, and raise `TargetError` if the user's code exits."""
    arguments = sys.argv
    sys.argv = [label]
    try:
        yield
    except SystemExit as error:
        raise TargetError(
            f"{label} ended the process while {meanwhile} (SystemExit: {error.code}). It probably parses a command "
            f'line or runs a main function there. Put that behind if __name__ == "__main__":, or give its arguments '
            f"defaults."
        ) from error
    finally:
        sys.argv = arguments


@contextmanager
def _without_training(reference: TargetPlace) -> Iterator[None]:
    def refuse(*_: Any) -> None:
        raise TargetError(
            f"{reference.label} trains while being imported (an optimizer stepped). Every probe imports it and would "
            f'train first. Put the training behind if __name__ == "__main__":, or tune the command: -- python FILE.'
        )

    handle = register_optimizer_step_post_hook(refuse)
    try:
        yield
    finally:
        handle.remove()
