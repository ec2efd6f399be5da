"""Defaults of `search` from files and variables; keys are the long option names.

The nearest `autotune.toml`, or `[tool.autotune]` in pyproject.toml, counts, from the working folder upwards.
Precedence: command line, environment (`AUTOTUNE_TIME_BUDGET` and the like), file, default.
"""

from __future__ import annotations

import difflib
import os
import tomllib
import typing
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from autotune.cli.search import search
from autotune.errors import UsageError

FILE, SHARED, PREFIX = "autotune.toml", "pyproject.toml", "AUTOTUNE_"
OF_ONE_CALL = {"target": "MODEL.py", "json": "--json", "output": "--output FILE", "dry_run": "--dry-run"}
OF_CHECK = ("device", "map", "command")  # the options that `check` takes too
NOT_SETTINGS = ("context", "json_output", "return", *OF_ONE_CALL)  # parameters of `search` that no file may set
SWITCHES = ("true", "yes", "on", "1", "t", "y", "false", "no", "off", "0", "f", "n")  # in any case, as Typer reads them


def check_variables() -> None:
    """Raise `UsageError` for a variable that looks like a setting and is none, or is neither on nor off.

    Otherwise the former would be ignored silently, and the message about the latter would name no value.
    """
    kinds = {
        option.envvar.removeprefix(PREFIX).lower(): typing.get_args(kind)[0]
        for kind in _hints(include_extras=True).values()
        for option in getattr(kind, "__metadata__", ())
        if isinstance(getattr(option, "envvar", None), str)
    }
    for variable, value in sorted(os.environ.items()):
        name = variable.removeprefix(PREFIX).lower()
        if variable.startswith(PREFIX) and name not in kinds:
            raise _unknown(f"The environment sets {variable}", name, kinds, lambda near: PREFIX + near.upper())
        if variable.startswith(PREFIX) and kinds[name] is bool and value and value.lower() not in SWITCHES:
            raise UsageError(
                f"The environment sets {variable} to {value!r}, which is neither on nor off. It was probably mistyped. "
                f"Use one of: {', '.join(SWITCHES)}."
            )


def read_file() -> tuple[Path | None, dict[str, Any]]:
    """Return the file, and defaults by command in the form that click needs.

    Raises `UsageError` for unknown keys, wrong types, unreadable files.
    """
    path, table = _nearest(Path.cwd())
    kinds = {name: kind for name, kind in _hints(include_extras=False).items() if name not in NOT_SETTINGS}
    values = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in kinds:
            raise _unknown(f"{path} sets {key!r}", name, kinds, lambda near: near.replace("_", "-"))
        values[name] = _checked(path, key, value, kinds[name])
    return path, {"search": values, "check": {name: values[name] for name in OF_CHECK if name in values}}


@cache
def _hints(*, include_extras: bool) -> dict[str, Any]:
    """Return the types of the options of a search; with the options themselves, if asked for."""
    return typing.get_type_hints(search, include_extras=include_extras)


def _unknown(sets: str, name: str, known: Iterable[str], spelled: Callable[[str], str]) -> UsageError:
    """Return the error about a `name` that is no setting; `sets` begins it, `spelled` returns how one is written."""
    if name in OF_ONE_CALL:
        return UsageError(
            f"{sets}, which is an option of the command line only. It belongs to one call of a command and not to a "
            f"project. Take it out, and type autotune search ... {OF_ONE_CALL[name]}."
        )
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {spelled(near[0])}?" if near else "`autotune search --help` lists what there is."
    return UsageError(f"{sets}, which autotune does not know. It was probably mistyped. {hint}")


def _checked(path: Path | None, key: str, value: Any, kind: Any) -> Any:
    """Return `value` as the command line would have it: a list as `16,32`, a table as `batch=64,amp=bf16`."""
    accepted = typing.get_args(kind) or (kind,)
    if bool in accepted:
        wanted, example, fits = "true or false", "true", isinstance(value, bool)
    elif int in accepted:
        wanted, example, fits = "a whole number", "20", type(value) is int
    else:
        wanted, example, fits = "a text, a number or a list of them", '"..."', not isinstance(value, bool)
        value = _text(value) if fits else value
    if fits:
        return value
    reasons = {str: "TOML writes these without quotes.", bool: "The option is no switch: it takes a value."}
    toml = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
    raise UsageError(
        f"{path} sets {key} to {toml}, and it takes {wanted}. {reasons.get(type(value), 'It was probably mistyped.')} "
        f"Write {key} = {example}, or take it out."
    )


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={part}" for name, part in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _nearest(start: Path) -> tuple[Path | None, dict[str, Any]]:
    for folder in (start, *start.parents):
        for path in (folder / FILE, folder / SHARED):
            if path.is_file():
                content = _read(path)
                table = content if path.name == FILE else _section(path, content)
                if table is not None:
                    return path, table
    return None, {}


def _section(path: Path, content: dict[str, Any]) -> dict[str, Any] | None:
    tools = content.get("tool")
    table = tools.get("autotune") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(
            f"{path} sets tool.autotune to {table!r}, and it is a section. The brackets were probably forgotten. "
            f"Write [tool.autotune], and the options below it."
        )
    return table


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if path.name == SHARED:
            return {}  # the file belongs to another tool, which will complain
        raise UsageError(
            f"{path} is not valid TOML: {error}. A quote or a bracket is probably missing. Correct it or move it away."
        ) from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}. It is probably another user's. Change its permissions, or search"
            f" from another folder."
        ) from error
