"""Replaces constants of a script, such as `default=DEFAULTS.batch`, by their values, if its text shows them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

from autotune.targets.commands.script.syntax import called, calls, keywords

DECLARING = ("add_argument", "option", "set_defaults")  # calls whose arguments are looked up


def put_in(trees: Sequence[ast.Module]) -> None:
    """Replace constants by their values, in place, in the calls that declare arguments.

    A constant is bound once, at the top of one of the files: `BATCH = 64`, `class Defaults: batch = 64`, and the
    entries of a dict or a call with keywords. Not covered: what `setattr`, `globals()` or another file changes.
    """
    bound = Counter(name for tree in trees for name in _bound(tree))
    modules = {one.asname or one.name for tree in trees for one in _imports(tree)}
    known = {
        text: node
        for tree in trees
        for text, node in _named(tree)
        if bound[text] <= 1 and bound[text.partition(".")[0].partition("[")[0]] == 1
    }
    for call in (one for tree in trees for name in DECLARING for one in calls(tree, name)):
        for given in call.keywords:
            text = ast.unparse(given.value)
            module, _, name = text.partition(".")
            given.value = known.get(text) or (known.get(name) if module in modules else None) or given.value


def _named(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that are bound at the top of a file, as they are written where used, with their expressions."""
    fields: dict[str, dict[str, ast.expr]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            own = dict(_assigned(node.body))
            yield from ((f"{node.name}.{name}", value) for name, value in own.items())
            makes_more = any(getattr(one, "name", "") in ("__init__", "__post_init__") for one in node.body)
            fields[node.name] = {} if makes_more else own
    for name, value in _assigned(tree.body):
        yield name, value
        if isinstance(value, ast.Dict):
            pairs = zip(value.keys, value.values, strict=True)
            yield from ((f"{name}[{key.value!r}]", one) for key, one in pairs if isinstance(key, ast.Constant))
        elif isinstance(value, ast.Call) and not value.args:
            entries = {**fields.get(called(value), {}), **keywords(value)}
            yield from ((f"{name}.{entry}", one) for entry, one in entries.items())
            yield from ((f"{name}[{entry!r}]", one) for entry, one in keywords(value).items())


def _assigned(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _bound(tree: ast.Module) -> Iterator[str]:
    """Yield all names bound outside of functions, or inside them by `global`, attribute or index."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield from [ast.unparse(node)] * 2  # twice, because it had another value before
        elif isinstance(node, ast.Global):
            yield from (name for name in node.names for _ in range(2))
    yield from _bound_here(tree)


def _bound_here(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield child.name
        elif not isinstance(child, ast.Lambda):
            yield from _bound_here(child)


def _imports(tree: ast.Module) -> Iterator[ast.alias]:
    return (one for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for one in node.names)
