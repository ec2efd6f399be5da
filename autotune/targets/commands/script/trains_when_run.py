"""Decides, by its syntax tree, whether a file is a script that trains when it is run, or a file of functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

AGREED = {"model", "trainer"}  # a file of functions has one of these names
LIGHTNING = "LightningModule"
TRAINS = {"backward", "step", "zero_grad", "trainer"}  # names of calls at the top level that train
READS_ARGUMENTS = re.compile(r"\b(argv|argparse|ArgumentParser|HfArgumentParser|click|typer|fire|hydra|tyro|absl)\b")
TRAINS_WITHIN = "backward"  # call of a function that trains: scalers and schedules have `fit` and `step`, too


def trains_when_run(path: Path) -> bool:
    """Return whether the file in `path` trains when it is run, and has no parts that autotune could build itself.

    It calls something at its end or behind `if __name__ == "__main__":` and has neither `model` nor `trainer` nor a
    LightningModule; or it trains at its top level, whatever its variables are called.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return False
    top = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    run_always = [node for node in top if not _is_guard(node)]
    if any(_trains(name) for node in run_always for name in _called(node)) or _trains_within(tree, run_always):
        return True
    if AGREED & set(_defined(tree)) or any(map(_is_lightning, tree.body)):
        return False
    guarded = any(_is_guard(node) for node in top)
    return guarded or any(isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) for node in run_always)


def takes_no_arguments(path: Path) -> bool:
    """Return whether the file in `path` defines `model` for autotune to call, and nothing that reads arguments."""
    try:
        tree = ast.parse(text := path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return False
    return "model" in _defined(tree) and not READS_ARGUMENTS.search(text) and not trains_when_run(path)


def _trains(called: str) -> bool:
    """Return whether a call by this name trains: only a trainer's `fit` and `train` count, not those of a scaler."""
    return called in TRAINS or (called.endswith((".fit", ".train")) and "trainer" in called.lower())


def _is_guard(node: ast.stmt) -> bool:
    """Return whether it is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) and "__main__" in ast.unparse(node.test)


def _called(node: ast.AST) -> Iterator[str]:
    """Yield the called names (`one`, `one.method`, `method`), without those inside functions and classes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    if isinstance(node, ast.Call):
        yield ast.unparse(node.func)
        if isinstance(node.func, ast.Attribute):
            yield node.func.attr
    for child in ast.iter_child_nodes(node):
        yield from _called(child)


def _trains_within(tree: ast.Module, run_always: list[ast.stmt]) -> bool:
    """Return whether functions train that are called at the top of the file, directly or by one another."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    names = [name for node in run_always for name in _called(node)]
    for name in names:  # the list grows meanwhile
        if name == TRAINS_WITHIN:
            return True
        function = functions.pop(name, None)
        names += [within for node in (function.body if function else ()) for within in _called(node)]
    return False


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (one.asname or one.name for one in node.names)
        elif isinstance(node, ast.Assign):
            yield from (one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def _is_lightning(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith(LIGHTNING) for base in node.bases)
