"""The place of training code, as a person types it: a file or a module, perhaps with a function, or a command."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import TargetError
from autotune.targets.commands.command import Command, is_command


@dataclass(frozen=True, kw_only=True)
class TargetPlace:
    """Exactly one of `file`, `module` and `command` is set. `attribute` names a function (or a dict) in the others."""

    file: Path | None = None
    module: str = ""
    attribute: str = ""
    command: Command | None = None

    @property
    def label(self) -> str:
        """The name of the target in messages: the file's, the module's, or the command's."""
        if self.command is not None:
            return self.command.label
        return self.file.name if self.file else self.module


def parse(text: str) -> TargetPlace | None:
    """Return the place that `text` refers to; None if it is none of these. Raises `TargetError` for a missing file."""
    if is_command(text):
        return TargetPlace(command=Command.parse(text))
    place, attribute = halves(text)
    path = Path(place)
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except OSError:  # the text is longer than a file name may be
        return None
    if is_file and path.suffix != ".py":
        raise TargetError(
            f"{place} is not a Python file: its name does not end in .py. It is probably a notebook or a note. Write "
            f"model() and dataset() into a file such as model.py, and name that."
        )
    if is_file:
        return TargetPlace(file=path.resolve(), attribute=attribute)
    if is_folder and not (path / "__init__.py").exists():
        raise TargetError(f"{place} is a folder. A target is one Python file. Name the file in it: {place}/model.py.")
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", place) and not place.endswith(".py"):
        return TargetPlace(module=place, attribute=attribute)
    if place.endswith(".py") and not re.search(r"\s", place):
        raise TargetError(_missing(path))
    return None


def halves(text: str) -> tuple[str, str]:
    """Return what stands before the colon, a file or a module, and the attribute behind it; empty: there is none."""
    place, _, attribute = text.partition(":") if re.search(r":[A-Za-z_]\w*$", text) else (text, "", "")
    return place, attribute


def _missing(path: Path) -> str:
    neighbours = sorted(file.name for file in path.parent.glob("*.py")) if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, neighbours, n=1)
    hint = f"Did you mean {path.parent / near[0]}?" if near else "Check the path; it is relative to where you are."
    return f"There is no file {path}. The name or the folder is probably mistyped. {hint}"
