"""Flags that a correction names, and that the syntax tree of the script does not show: it makes them at run time."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from autotune.errors import TargetError
from autotune.targets.commands.argument_meaning import Meaning
from autotune.targets.commands.recognition.doubts import switches
from autotune.targets.commands.script.argument_names import normal
from autotune.targets.commands.script.declared_arguments import Argument


def unseen_flags(named: Mapping[str, Meaning], known: Collection[str], file: Path | None) -> tuple[Argument, ...]:
    """Return the flags among the arguments `named` in corrections that are not `known` (normal names): off today.

    The script's `file` must contain the name, else it was mistyped. A flag can only set what is on or off.
    """
    text = file.read_text("utf-8", "replace") if file is not None else ""
    words = set(map(normal, re.findall(r"[A-Za-z][\w-]*", text)))
    return tuple(
        Argument(names=(option,), default=False, is_flag=True)
        for option, meaning in named.items()
        if option.startswith("--") and normal(option) in words - {*known} and meaning.is_truth
    )


def no_such_argument(key: str, option: str, meaning: Meaning) -> TargetError:
    """Return the error for a correction whose argument is neither typed nor found in the script."""
    names = switches(meaning.knob) if meaning.knob is not None and not meaning.is_switch else ()
    ways = " or ".join(f"--map {name}={option}" for name in names)
    of_flag = f" A flag that is off today cannot be typed: say what it switches on, {ways}." if ways else ""
    return TargetError(
        f"--map {key}={option}: the command has no argument {option}. It was probably mistyped, or the script reads it "
        f"in a way that is not seen. Type it in the command with the value that it has today.{of_flag}"
    )
