"""`autotune init`: writes a commented file to start from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.output import say, write
from autotune.errors import UsageError
from autotune.harmless import shell_word

STARTING_FILE = "starting_file.txt"


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("model.py"),
) -> None:
    """Write a commented starting file.

    `autotune check` accepts it as it is.
    """
    place = path / "model.py" if path.is_dir() else path
    if place.exists():
        raise UsageError(
            f"{place} exists already. It is probably your work. Name another file: autotune init other.py."
        )
    if place.suffix != ".py":
        raise UsageError(
            f"{place} is not a Python file, and training code is one. The ending was probably forgotten. Write "
            f"autotune init {shell_word(str(place.with_suffix('.py')))}."
        )
    write(place, files("autotune.cli").joinpath(STARTING_FILE).read_text("utf-8"))
    say(f"wrote {place}")
    say(f"next: autotune check {shell_word(str(place))}")
