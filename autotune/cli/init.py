"""`autotune init`: a commented file to start from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.output import say
from autotune.errors import UsageError
from autotune.study.layout import unwritable

TEMPLATE = "starting_file.txt"


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
    try:
        place.write_text(files("autotune.cli").joinpath(TEMPLATE).read_text("utf-8"), "utf-8")
    except OSError as error:
        raise unwritable(place, error) from error
    say(f"wrote {place}")
    say(f"next: autotune check {place}")
