"""The output of a command: unchanged text to a terminal, or to a file that was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from autotune.errors import UsageError
from autotune.harmless import plain, plain_lines


def plain_console(*, stderr: bool = False) -> Console:
    """Return a console without markup, emoji codes and guessed colours: `--batch 8:x` and `[a]` are plain text."""
    return _HarmlessConsole(stderr=stderr, highlight=False, markup=False, emoji=False)


def text_width(console: Console) -> int | None:
    """Return the characters of a line on a terminal; None for a file, in which lines stay whole."""
    return console.width if console.file.isatty() else None


def say(text: object, *, stderr: bool = False) -> None:
    """Print `text` on one line, made harmless because it may contain foreign names."""
    typer.echo(plain(str(text)), err=stderr)


def say_json(value: Any) -> None:
    """Print a record, or a collection of them, as JSON on standard output."""
    from autotune.core import codec

    sys.stdout.write(codec.encode(value).decode())


def say_settings_of_file(context: typer.Context) -> None:
    """Say on standard error which settings of a file this call uses; nothing if there are none."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    keys = [name for name, source in sources.items() if source and source.name == "DEFAULT_MAP"]
    if keys:
        names = ", ".join(name.replace("_", "-") for name in keys)
        plain_console(stderr=True).print(f"Settings from {context.obj}: {names}", style="dim", soft_wrap=True)


class _HarmlessConsole(Console):
    """A console on which only its own colours and cursor movements steer the terminal, whatever text is printed."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what Rich renders, with control characters in texts made harmless."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else plain_lines(text), style, control)


def write(path: Path, content: str | bytes) -> None:
    """Write `content` to the file that a user named. Raises `UsageError` if that is not possible.

    No folder is made, because a missing one was probably mistyped.
    """
    try:
        path.write_bytes(content.encode("utf-8", "replace") if isinstance(content, str) else content)
    except FileNotFoundError as error:
        if path.parent.is_dir():  # a folder of the system, such as /proc
            raise UsageError(
                f"{path} cannot be written: {path.parent} takes no new files. It is probably a folder of the system. "
                f"Name a file elsewhere."
            ) from error
        raise UsageError(
            f"{path} cannot be written: there is no folder {path.parent}. It was probably mistyped. Make it first, or "
            f"name another file."
        ) from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}. It is probably a folder, or in one that is "
            f"read-only or full. Name another file."
        ) from error
