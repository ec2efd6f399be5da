"""Where the text of a command goes: a terminal that shows it as it stands, or a file that was asked for."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from autotune.errors import UsageError


def plain_console(*, stderr: bool = False) -> Console:
    """A console without markup, emoji codes and guessed colours: `--batch 8:x` and a folder `[a]` are only text."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def written(path: Path, content: bytes) -> None:
    """Put `content` into the file, its folder made if need be. Raises `UsageError` where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}. It is probably a folder, or in one that is "
            f"read-only or full. Give another file with -o."
        ) from error
