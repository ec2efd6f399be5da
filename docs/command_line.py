"""Writes `docs/command-line.md` from the commands themselves: `python docs/command_line.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from autotune.cli.app import app

PAGE = Path(__file__).parent / "command-line.md"
HEAD = """\
# Command line

Written by `make docs` from what `--help` says. Most options of `search` can also be set by the variable that
the table names, or in a settings file: see [using the answer](using-the-answer.md#settings-in-a-file).
"""


def text() -> str:
    """The whole page."""
    group: Any = typer.main.get_command(app)
    parts = [HEAD, _sentence(group.epilog) + "\n"]
    parts += [_section(name, command) for name, command in group.commands.items()]
    return "\n".join(parts)


def _section(name: str, command: Any) -> str:
    """One command: what it does, how it is called, its options."""
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join([f"autotune {name}", *(_placeholder(one) for one in arguments)])
    panels: dict[str, list[str]] = {"": [_row(one, _placeholder(one)) for one in arguments]}
    for one in options:
        panels.setdefault(getattr(one, "rich_help_panel", None) or "", []).append(_row(one, _spelling(one)))
    tables = [line for title, rows in panels.items() for line in _table(title, rows)]
    return "\n".join([f"## {usage}", "", *_paragraphs(command.help), "", *tables])


def _table(title: str, rows: list[str]) -> list[str]:
    """The options below one heading."""
    head = [f"{title}:", ""] if title else []
    return [*head, "| argument or option | meaning |", "| --- | --- |", *rows, ""]


def _paragraphs(written: str) -> Iterator[str]:
    """The help text with each paragraph on one line and a line between them."""
    yield "\n\n".join(" ".join(part.split()) for part in written.split("\n\n"))


def _placeholder(argument: Any) -> str:
    shown = argument.name.upper()
    return shown if argument.required else f"[{shown}]"


def _spelling(option: Any) -> str:
    """All its names, and what kind of value follows."""
    names = ", ".join(sorted(option.opts, key=len)) + "".join(f" / {name}" for name in option.secondary_opts)
    return names if option.is_flag else f"{names} {option.metavar or 'VALUE'}"


def _row(parameter: Any, spelling: str) -> str:
    """A line of the table: meaning, default, variable."""
    said = [_sentence(parameter.help or "")]
    default = getattr(parameter.default, "value", parameter.default)
    if default is not None and not isinstance(default, bool) and "[default" not in said[0]:
        said.append(f"Default: {default}.")
    if isinstance(getattr(parameter, "envvar", None), str):
        said.append(f"Variable: `{parameter.envvar}`.")
    meaning = " ".join(said).replace("|", "\\|")
    return f"| `{spelling}` | {meaning} |"


def _sentence(written: str) -> str:
    """On one line."""
    return " ".join(written.split())


if __name__ == "__main__":
    PAGE.write_text(text())
