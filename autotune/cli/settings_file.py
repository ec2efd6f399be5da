"""Defaults from files: `autotune.toml`, or `[tool.autotune]` in pyproject.toml; keys are the long option names.

The nearest file upwards from the working folder counts. Precedence: command line, environment, file, default.
"""

from __future__ import annotations

import difflib
import tomllib
import typing
from pathlib import Path
from typing import Any

import typer

from autotune.cli.output import plain_console
from autotune.errors import UsageError

OWN, SHARED = "autotune.toml", "pyproject.toml"
OF_ONE_CALL = {"target": "MODEL.py", "json": "--json", "output": "--output FILE", "dry_run": "--dry-run"}
NOT_SETTINGS = ("context", "json_output", "return", *OF_ONE_CALL)  # parameters of `search` that no file may set
SWITCH, COUNT, TEXT = "true or false", "a whole number", "a text, a number or a list of them"
EXAMPLES = {SWITCH: "true", COUNT: "20", TEXT: '"..."'}


def announce(context: typer.Context) -> None:
    """Say on standard error which settings of a file this call goes by; nothing where there are none."""
    keys = [name for name in context.params if _source(context, name) == "DEFAULT_MAP"]
    if keys:
        told = ", ".join(name.replace("_", "-") for name in keys)
        plain_console(stderr=True).print(f"Settings from {context.obj}: {told}", style="dim", soft_wrap=True)


def _source(context: typer.Context, name: str) -> str:
    return getattr(context.get_parameter_source(name), "name", "")


def defaults(start: Path | None = None) -> tuple[Path | None, dict[str, Any]]:
    """The file, and defaults by command as click wants them.

    Raises `UsageError` for unknown keys, wrong types, unreadable files.
    """
    from autotune.cli.search import search

    found = _nearest(start or Path.cwd())
    if found is None:
        return None, {}
    path, table = found
    kinds = {name: kind for name, kind in typing.get_type_hints(search).items() if name not in NOT_SETTINGS}
    values = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name in OF_ONE_CALL:
            raise UsageError(
                f"{path} sets {key!r}, which is an option of the command line only. It belongs to one call of a "
                f"command and not to a project. Take it out, and type autotune search ... {OF_ONE_CALL[name]}."
            )
        if name not in kinds:
            close = difflib.get_close_matches(name, kinds, n=1)
            hint = f"Did you mean {close[0].replace('_', '-')}?" if close else "Keys are the long options of search."
            raise UsageError(
                f"{path} sets {key!r}, which autotune does not know. {hint} Correct the key or take it out."
            )
        values[name] = _checked(path, key, value, kinds[name])
    return path, {"search": values, "check": {name: values[name] for name in ("device",) if name in values}}


def _checked(path: Path, key: str, value: Any, kind: Any) -> Any:
    """`value` as the command line would have it: a list as `16,32`, a table as `batch=64,amp=bf16`."""
    accepted = typing.get_args(kind) or (kind,)
    if bool in accepted:
        wanted, fits = SWITCH, isinstance(value, bool)
    elif int in accepted:
        wanted, fits = COUNT, isinstance(value, int) and not isinstance(value, bool)
    else:
        wanted, fits = TEXT, not isinstance(value, bool)
    if not fits:
        raise UsageError(
            f"{path} sets {key} to {_toml(value)}, and it takes {wanted}. {_why(value, wanted)} "
            f"Write {key} = {EXAMPLES[wanted]}, or take it out."
        )
    return value if wanted != TEXT else _text(value)


def _toml(value: Any) -> str:
    """A value as it stands in the file."""
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def _why(value: Any, wanted: str) -> str:
    """The probable reason of a value of the wrong type."""
    if isinstance(value, str) and wanted != TEXT:
        return "TOML writes these without quotes."
    if isinstance(value, bool) and wanted == TEXT:
        return "The option is no switch: it takes a value."
    return "The value was probably mistyped."


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={part}" for name, part in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _nearest(start: Path) -> tuple[Path, dict[str, Any]] | None:
    for folder in (start, *start.parents):
        for path in (folder / OWN, folder / SHARED):
            if path.is_file():
                content = _read(path)
                table = content if path.name == OWN else _section(path, content)
                if table is not None:
                    return path, table
    return None


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
            return {}  # somebody else's file; whoever it is for will complain
        raise UsageError(
            f"{path} is not valid TOML: {error}. A quote or a bracket is probably missing. Correct it or move it away."
        ) from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}. It is probably another user's. Change its permissions, or search"
            f" from another folder."
        ) from error
