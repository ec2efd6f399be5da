"""The Python file that a target names, and a digest that shows whether it has changed, or what it imports."""

from __future__ import annotations

import re
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal

from autotune.errors import TargetError
from autotune.sentences import first_few
from autotune.targets.commands.command import Command, is_command
from autotune.targets.commands.program import Program
from autotune.targets.commands.recognition.shell import program_of, script_of
from autotune.targets.own_imports import own_imports
from autotune.targets.reference import parse

MOST_MODULES = 5  # named in a message


def source_of(target: str) -> Path | None:
    """Return the file of a target, looked up from the working folder; None for installed code.

    Raises `TargetError` where it is missing.
    """
    return _source(target)[0]


def digest_of(target: str) -> str:
    """Return a digest of the content of a target's file; empty for installed code, and if it cannot be read.

    If the file imports others of the user's, directly or not, a `+` and a digest of these follow. It is the same in
    every checkout. Earlier versions stored the first part alone.
    """
    with suppress(TargetError, OSError):
        file, module = _source(target)
        if file is not None:
            own = sha256(file.read_bytes()).hexdigest()
            parts = sorted((name, sha256(text).hexdigest()) for name, text in own_imports(file, module).items())
            return f"{own}+{sha256(repr(parts).encode()).hexdigest()}" if parts else own
    return ""


def difference(there: str, here: str) -> Literal["", "file", "imports", "unfound"]:
    """Return what differs by two digests of a target, of which only `there` may be that of an earlier version.

    A digest without a part for imports may be such a one: then these are not compared. `unfound`: the file is the same,
    and nothing that it imports is found here, as without the PYTHONPATH of there. That is no change of it.
    """
    (own_there, _, imports_there), (own_here, _, imports_here) = there.partition("+"), here.partition("+")
    if own_there != own_here:
        return "file"
    if imports_there in ("", imports_here):
        return ""
    return "imports" if imports_here else "unfound"


def modules_of(target: str) -> str:
    """Return the names of the user's own modules that a target imports, as text; `nothing` if there are none."""
    with suppress(TargetError, OSError):
        file, module = _source(target)
        if file is not None:
            return first_few(list(own_imports(file, module)), MOST_MODULES) or "nothing"
    return "nothing"


def _source(target: str) -> tuple[Path | None, str]:
    """Return what `source_of` returns, and the name of a target that is named as a module. Raises as that does."""
    reference = parse(target)
    if reference is None:
        return None, ""
    if reference.command is not None:
        program = program_of(reference.command.present())
    else:
        program = Program(file=reference.file, module=reference.module, arguments=())
    file = script_of(program)
    is_python = file is not None and file.suffix == ".py"  # a console script is installed, too
    return file if is_python else None, program.module


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
