"""Breaks sentences of a profile into lines for a terminal; they are never cut, because the reason is at the end."""

from __future__ import annotations

from textwrap import fill

LINE_WIDTH = 100  # characters of a line, at most


def broken_into_lines(text: str, indent: str = "") -> str:
    """Return the lines, each with a line break; all but the first are indented by two more. Paths are not broken."""
    lines = fill(
        text, LINE_WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False,
        break_on_hyphens=False, replace_whitespace=False,
    )  # fmt: skip
    return f"{lines}\n"
