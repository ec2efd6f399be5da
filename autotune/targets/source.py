"""The Python file that a target names: its path, and a digest that shows whether it has changed."""

from __future__ import annotations

import re
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from autotune.errors import TargetError
from autotune.targets.commands.command import Command, is_command
from autotune.targets.commands.program import Program
from autotune.targets.commands.recognition.shell import program_of, script_of
from autotune.targets.reference import parse


def source_of(target: str) -> Path | None:
    """Return the file of a target, looked up from the working folder; None for installed code.

    Raises `TargetError` where it is missing.
    """
    reference = parse(target)
    if reference is None:
        return None
    if reference.command is not None:
        program = program_of(reference.command.present())
    else:
        program = Program(file=reference.file, module=reference.module, arguments=())
    file = script_of(program)
    return file if file is not None and file.suffix == ".py" else None  # a console script is installed, too


def digest_of(target: str) -> str:
    """Return a digest of the content of a target's file; empty if it cannot be read."""
    with suppress(TargetError, OSError):
        file = source_of(target)
        return "" if file is None else sha256(file.read_bytes()).hexdigest()
    return ""


def may_declare(target: str, name: str) -> bool:
    """Return whether the target may declare a knob of that name: its text has the word, or it is installed code.

    So a mistyped name is an error before any code runs. Raises `TargetError` for a command that cannot be read.
    """
    if is_command(target):
        return any(one.name == name for one in Command.parse(target).declared)
    with suppress(TargetError, OSError):
        file = source_of(target)
        return file is None or re.search(rf"\b{re.escape(name)}\b", file.read_text("utf-8", "replace")) is not None
    return False
