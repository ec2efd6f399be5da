"""Reads the dtypes of a script's autocasts from its syntax tree: they show what its flag for mixed precision means."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autotune.targets.commands.script.syntax import calls, keywords

HALVES = {"float16": "float16", "half": "float16", "bfloat16": "bfloat16"}
OF_DEVICE = {"cuda": "float16", "cpu": "bfloat16"}  # autocast's dtype where none is given (torch 2.13)


def autocast_dtypes(tree: ast.Module) -> Iterator[str | None]:
    """Yield the dtype of each call of `autocast`; None where only running the script would tell."""
    for call in calls(tree, "autocast"):
        named = keywords(call)
        if "dtype" in named or len(call.args) > 1:
            yield _dtype(named.get("dtype") or call.args[1], tree)
        else:
            yield OF_DEVICE.get(_device(call, named.get("device_type")))


def _device(call: ast.Call, named: ast.expr | None) -> str:
    """Return the kind of device of an autocast call; empty if it is computed at run time."""
    if ast.unparse(call.func).endswith(("cuda.amp.autocast", "cpu.amp.autocast")):
        return ast.unparse(call.func).split(".")[-3]
    node = named or (call.args[0] if call.args else None)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _dtype(node: ast.expr, tree: ast.Module) -> str | None:
    if isinstance(node, ast.Name):  # a variable that is assigned once
        set_to = [
            one.value
            for one in ast.walk(tree)
            if isinstance(one, ast.Assign) and any(ast.unparse(target) == node.id for target in one.targets)
        ]
        return _dtype(set_to[0], tree) if len(set_to) == 1 and not isinstance(set_to[0], ast.Name) else None
    return HALVES.get(node.attr) if isinstance(node, ast.Attribute) else None
