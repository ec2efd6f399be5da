"""Defaults from files: `autotune.toml`, or `[tool.autotune]` in pyproject.toml; keys are the long option names.

The nearest file upwards from the working folder counts. Precedence: command line, environment, file, default.
"""

from __future__ import annotations

import difflib
import inspect
import tomllib
from pathlib import Path
from typing import Any

from autotune.cli.search import search
from autotune.errors import UsageError

OWN, SHARED = "autotune.toml", "pyproject.toml"
NOT_SETTINGS = ("target", "json_output", "output", "dry_run")  # of one call, not of a project


def defaults(start: Path | None = None) -> dict[str, Any]:
    """Defaults by command, as click wants them. Raises `UsageError` for unknown keys and unreadable files."""
    found = _nearest(start or Path.cwd())
    if found is None:
        return {}
    path, table = found
    known = [name for name in inspect.signature(search).parameters if name not in NOT_SETTINGS]
    values = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0].replace('_', '-')}?" if close else "Keys are the long options of search."
            raise UsageError(
                f"{path} sets {key!r}, which autotune does not know. {hint} Correct the key or take it out."
            )
        values[name] = value if isinstance(value, bool | int | float) else _text(value)
    return {"search": values, "check": {name: values[name] for name in ("device",) if name in values}}


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _nearest(start: Path) -> tuple[Path, dict[str, Any]] | None:
    for folder in (start, *start.parents):
        for path in (folder / OWN, folder / SHARED):
            if path.is_file():
                content = _read(path)
                table = content if path.name == OWN else content.get("tool", {}).get("autotune")
                if table is not None:
                    return path, table
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if path.name == SHARED:
            return {}  # somebody else's file; whoever it is for will complain
        raise UsageError(f"{path} is not valid TOML: {error}. Correct it or move it away.") from error
