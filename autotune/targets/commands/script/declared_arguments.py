"""Reads the arguments that a script declares from its syntax tree, without running it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.targets.commands.script.argument_names import is_negative
from autotune.targets.commands.script.autocasts import autocast_dtypes
from autotune.targets.commands.script.constants import put_in
from autotune.targets.commands.script.syntax import called, calls, keywords

UNKNOWN = object()  # a default that is known only when the script runs
DEEPEST_IMPORT = 2  # imports that are followed: a script often keeps its parser in a file beside it


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument that a script declares: its names, default and kind."""

    names: tuple[str, ...]  # `-b`, `--batch-size`; without dashes where it is written `key=value`
    default: Any = field(default=UNKNOWN, hash=False)  # a list or a dict, too
    is_flag: bool = False  # given without a value
    is_negated: bool | None = False  # a flag that switches off what its name says; None: the name tells
    off: str = ""  # of a pair of flags, the one that switches off
    choices: tuple[Any, ...] = field(default=(), hash=False)
    subcommand: str = ""  # the subcommand word that it needs in the command; empty: none

    @property
    def name(self) -> str:
        """The longest of the argument's names."""
        return max(self.names, key=len)

    @property
    def words(self) -> tuple[str, ...]:
        """All words that may be typed for it."""
        return (*self.names, *([self.off] if self.off else ()))


@dataclass(frozen=True, kw_only=True)
class Script:
    """The arguments that the syntax tree of a script declares."""

    arguments: tuple[Argument, ...] = ()
    # Names that the script imports or calls, calls with their keywords as `Adam(lr)`, and texts that it opens.
    marks: frozenset[str] = frozenset()
    has_subcommands: bool = False  # then an argument without a subcommand belongs to an unknown parser
    precisions: frozenset[str] | None = None  # dtypes of its autocasts; None: it has none, or computes one

    def of_subcommand(self, words: Collection[str]) -> Script:
        """Return the script without arguments of subcommands that are not among `words`."""
        mine = (one for one in self.arguments if not one.subcommand or one.subcommand in words)
        return replace(self, arguments=tuple(mine))


def read_script(path: Path | None) -> Script:
    """Return the script in `path`; an empty one for a file that cannot be read or is not Python."""
    trees = list(_trees(path, DEEPEST_IMPORT)) if path is not None else []
    put_in(trees)
    found: dict[tuple[str, ...], Argument] = {}
    for one in (argument for tree in trees for argument in (*_argparse(tree), *_click(tree), *_configurator(tree))):
        key = (one.subcommand, *one.names)
        known = found.get(key)
        found[key] = one if known in (None, one) else replace(one, default=UNKNOWN)
    for tree in trees:
        _set_defaults(tree, found)
    casts = [dtype for tree in trees for dtype in autocast_dtypes(tree)]
    return Script(
        arguments=tuple(found.values()),
        marks=frozenset(mark for tree in trees for mark in _marks(tree)),
        has_subcommands=any([*calls(tree, "add_subparsers")] or _click_commands(tree) for tree in trees),
        precisions=frozenset(filter(None, casts)) if casts and all(casts) else None,
    )


def with_globals(script: Script, files: Iterable[Path]) -> Script:
    """Return `script` with the defaults that these files of globals set; later files win."""
    arguments = {one.name: one for one in script.arguments}
    for tree in (tree for file in files for tree in _trees(file, 1)):
        for name, node in _globals(tree):
            if f"--{name}" in arguments:
                arguments[f"--{name}"] = replace(arguments[f"--{name}"], default=_value(node))
    return replace(script, arguments=tuple(arguments.values()))


def _trees(path: Path, depth: int, seen: frozenset[Path] = frozenset()) -> Iterator[ast.Module]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return
    yield tree
    for name in _imported(tree) if depth > 1 else ():
        place = path.parent.joinpath(*name.split("."))
        beside = next((one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()), None)
        if beside is not None and beside not in seen:
            yield from _trees(beside, depth - 1, seen | {path, beside})


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _constants(nodes: list[ast.expr]) -> tuple[str, ...]:
    return tuple(one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _value(node: ast.expr | None, otherwise: Any = UNKNOWN) -> Any:
    if node is None:
        return otherwise
    try:
        return ast.literal_eval(node)
    except ValueError:
        pass
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):  # `5 * 8`, which people write for accumulation
        left, right = _value(node.left), _value(node.right)
        if isinstance(left, int) and isinstance(right, int):
            return left * right
    return UNKNOWN


def _argparse(tree: ast.Module) -> Iterator[Argument]:
    subcommands = {
        target.id: _subcommand(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in calls(tree, "add_argument"):
        parser = call.func.value if isinstance(call.func, ast.Attribute) else None
        names, given = tuple(one for one in _constants(call.args) if one.startswith("-")), keywords(call)
        if not names:
            continue
        action = _value(given.get("action"), "")
        pair = ast.unparse(given["action"]).endswith("BooleanOptionalAction") if "action" in given else False
        is_flag = pair or action in ("store_true", "store_false")
        default = _value(given.get("default"), action == "store_false" if is_flag else None)
        long = max(names, key=len)
        is_off = action == "store_false"
        contradicts = is_off and is_negative(long) and "dest" not in given
        yield Argument(
            names=names, default=default, is_flag=is_flag, choices=_choices(given.get("choices")),
            off=f"--no-{long[2:]}" if pair else "", is_negated=None if contradicts else is_off,
            subcommand=subcommands.get(parser.id, "") if isinstance(parser, ast.Name) else _subcommand(parser),
        )  # fmt: skip


def _subcommand(node: ast.expr | None) -> str:
    """Return the word of `subparsers.add_parser("train")`; empty for any other expression."""
    if isinstance(node, ast.Call) and called(node) == "add_parser":
        return next(iter(_constants(node.args)), "")
    return ""


def _click_commands(tree: ast.Module) -> dict[int, str]:
    """Return the subcommand of each option that decorates `@group.command()`, by the identity of its call."""
    found: dict[int, str] = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        decorators = [one for one in function.decorator_list if isinstance(one, ast.Call)]
        for one in decorators:
            if called(one) == "command" and ast.unparse(one.func) not in ("command", "click.command"):
                name = next(iter(_constants(one.args)), function.name.replace("_", "-"))
                found |= {id(option): name for option in decorators}
    return found


def _choices(node: ast.expr | None) -> tuple[Any, ...]:
    found = _value(node, ())
    return tuple(found) if isinstance(found, list | tuple | set | dict) else ()


def _click(tree: ast.Module) -> Iterator[Argument]:
    subcommands = _click_commands(tree)
    for call in calls(tree, "option"):
        names, given = tuple(one for one in _constants(call.args) if one.startswith("-")), keywords(call)
        pairs = [one.split("/") for one in names if "/" in one]
        plain = tuple(one for one in names if "/" not in one)
        if not names:
            continue
        off = pairs[0][1].strip() if pairs else ""
        kind = given.get("type")
        choices = (
            _choices(kind.args[0]) if isinstance(kind, ast.Call) and called(kind) == "Choice" and kind.args else ()
        )
        yield Argument(
            names=(*plain, *(one[0].strip() for one in pairs)), default=_value(given.get("default"), None), off=off,
            is_flag=bool(pairs) or _value(given.get("is_flag")) is True, choices=choices,
            subcommand=subcommands.get(id(call), ""),
        )  # fmt: skip


def _configurator(tree: ast.Module) -> Iterator[Argument]:
    """Yield the globals of a script that is configured like nanoGPT: `exec(open('configurator.py').read())`."""
    for node in tree.body:
        if "configurator.py" in ast.unparse(node) and any(calls(node, "exec")):
            return
        for name, value in _globals(ast.Module(body=[node], type_ignores=[])):
            default = _value(value)
            if "configurator.py" in _texts(tree) and (
                isinstance(default, int | float | str | bool) or isinstance(value, ast.IfExp)
            ):
                yield Argument(names=(f"--{name}",), default=default)


def _globals(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _texts(tree: ast.AST) -> str:
    return " ".join(
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _set_defaults(tree: ast.Module, found: dict[tuple[str, ...], Argument]) -> None:
    """Apply `parser.set_defaults(batch_size=16)`."""
    for call in calls(tree, "set_defaults"):
        for name, node in keywords(call).items():
            for key, one in found.items():
                if one.name.lstrip("-").replace("-", "_") == name:
                    found[key] = replace(one, default=_value(node))


def _marks(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (one.name.rpartition(".")[2] for one in node.names)
        elif isinstance(node, ast.Call):
            yield from (called(node), *(_constants(node.args) if called(node) == "open" else ()))
            yield from (f"{called(node)}({name})" for name in keywords(node))
        elif isinstance(node, ast.Attribute):
            yield node.attr
