"""Finds calls in a syntax tree, their names and their keywords."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """Yield the calls of a function or method of that name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) == name:
            yield node


def called(node: ast.Call) -> str:
    """Return the last part of the name of the called function; empty if it is computed at run time."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def keywords(node: ast.Call) -> Mapping[str, ast.expr]:
    """Return the keyword arguments, without those that `**` unpacks."""
    return {one.arg: one.value for one in node.keywords if one.arg}
