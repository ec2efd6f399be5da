"""Puts values into a file of settings that a user keeps: its other contents stay."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.export.plain import as_json, as_yaml

YAML = (".yaml", ".yml")
_KEY = re.compile(r"""(?!-[ ])[^\s{\[&!|>][^#]*:(\s|$)""")  # how the top level of a file begins that can be added to
_LINE = re.compile(r"(?P<name>[A-Za-z_][\w.-]*)(?P<colon>\s*:[ \t]*)(?P<value>[^#\n]*?)(?P<rest>[ \t]*(#.*)?)")


def merged(path: Path, values: Mapping[str, Any]) -> str:
    """Return the content of `path` with these values at its top level; a file that is not there is begun.

    JSON is written anew, of YAML only the lines of the values: comments and order stay. Raises `UsageError`.
    """
    if path.suffix not in (".json", *YAML):
        raise UsageError(
            f"{path} is neither JSON nor YAML by its name. Values can be put into those only. Name a file that ends in "
            f".json or .yaml, or use --output."
        )
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}. It is probably not a text file. Name another.") from error
    return _yaml(path, before, values) if path.suffix in YAML else _json(path, before, values)


def _json(path: Path, before: str, values: Mapping[str, Any]) -> str:
    try:
        content = json.loads(before) if before.strip() else {}
    except ValueError as error:
        raise UsageError(
            f"{path} is not valid JSON: {error}. A comma or a quote is probably missing. Correct it, or name another "
            f"file."
        ) from error
    if not isinstance(content, dict):
        raise UsageError(
            f"{path} holds no object with names. The settings would have no place in it. Name another file."
        )
    return as_json(content | dict(values))


def _yaml(path: Path, before: str, values: Mapping[str, Any]) -> str:
    lines, missing = before.splitlines(), dict(values)
    content = [line for line in lines if line.strip() and not line.lstrip().startswith(("#", "%"))]
    content = content[1:] if content[:1] == ["---"] else content
    if any(line.startswith(("---", "...")) for line in content) or not _KEY.match(content[0] if content else "key:"):
        raise UsageError(
            f"{path} is not one block-style YAML mapping. Settings at its end would make it invalid. Name another "
            f"file, or put the settings in by hand."
        )
    for number, line in enumerate(lines):
        found = _LINE.fullmatch(line)
        if found is None or found["name"] not in values:
            continue
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if (found["value"][:1] in ("[", "{", "|", ">", "&", "*", "!") and not _is_mapping(found["value"])) or (
            not found["value"] and following.startswith((" ", "-", "\t"))
        ):
            raise UsageError(
                f"{path} has more than one value for {found['name']}, in line {number + 1}. Only the place of a single "
                f"one can be taken. Take it out, or put the setting in by hand."
            )
        value = missing.pop(found["name"], values[found["name"]])
        lines[number] = f"{found['name']}: {json.dumps(value)}{found['rest']}"
    return "\n".join([*lines, as_yaml(missing).rstrip("\n")] if missing else lines) + "\n"


def _is_mapping(text: str) -> bool:
    """Return whether `text` is a whole mapping, as this module writes one on a line."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
