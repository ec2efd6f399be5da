"""The Python file that a target names, and a digest that shows whether it, or what it imports, is the same."""

from __future__ import annotations

import re
from contextlib import suppress
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from autotune.errors import TargetError
from autotune.sentences import first_few
from autotune.targets.commands.command import PREFIX, Command, is_command
from autotune.targets.commands.program import Program
from autotune.targets.commands.recognition.shell import program_of, script_of
from autotune.targets.own_imports import own_imports
from autotune.targets.reference import halves, parse

MOST_MODULES = 5  # named in a message
_DIGITS = 8  # hexadecimal, of each import's digest: another content has the same once in 4 billion times


def source_of(target: str) -> Path | None:
    """Return the file of a target, looked up from the working folder; None for installed code.

    Raises `TargetError` where it is missing.
    """
    return _source(target)[0]


def digest_of(target: str) -> str:
    """Return a digest of the content of a target's file; empty for installed code, and if it cannot be read.

    If the file imports others of the user's, directly or not, a `+` and a digest of these follow, then a `+` and the
    beginning of the digest of each, by name: `net:0a1b2c3d,net.layers:4e5f6a7b`. It is the same in every checkout.
    Earlier versions stored the first part alone, or the first two.
    """
    with suppress(TargetError, OSError):
        file, module = _source(target)
        if file is not None:
            own = sha256(file.read_bytes()).hexdigest()
            parts = sorted((name, sha256(text).hexdigest()) for name, text in own_imports(file, module).items())
            each = ",".join(f"{name}:{one[:_DIGITS]}" for name, one in parts)
            return f"{own}+{sha256(repr(parts).encode()).hexdigest()}+{each}" if parts else own
    return ""


def difference(there: str, here: str) -> Literal["", "file", "imports", "unfound"]:
    """Return what differs by two digests of a target, of which only `there` may be that of an earlier version.

    A digest without a part for imports may be such a one: then these are not compared. `unfound`: the file is the same,
    and so are the imports that are found there and here, but some that are found there are not found here, as without
    the PYTHONPATH of there. That is no change of it. Not covered: a module that was emptied or deleted is taken for one
    that is not found.
    """
    (own_there, all_there, each_there), (own_here, all_here, each_here) = _parts(there), _parts(here)
    if own_there != own_here:
        return "file"
    if all_there in ("", all_here):
        return ""
    both = each_there.keys() & each_here.keys()
    if any(each_there[name] != each_here[name] for name in both) or (all_here and not each_there):
        return "imports"
    return "unfound" if not all_here or each_there.keys() - each_here.keys() else ""


def unfound(there: str, here: str) -> str:
    """Return the names of the modules that are imported there and not found here, as text, by two digests."""
    names = _parts(there)[2].keys() - _parts(here)[2].keys()
    return first_few(sorted(names), MOST_MODULES) or "all of them"  # an earlier version did not note their names


def _parts(digest: str) -> tuple[str, str, dict[str, str]]:
    """Return the parts of a digest: of the file, of its imports together, and of each by name."""
    own, together, each, *_ = (*digest.split("+"), "", "")
    return own, together, dict(one.split(":") for one in each.split(",") if one)


def is_same(there: str, digest: str, here: str) -> bool:
    """Return whether a recorded target and its digest are those of the target `here`, as it is typed in this folder.

    The words for the file may differ: two paths to one file; or, from another folder or on another machine, paths of
    one name to files of one content. All other words have to be equal.
    """
    differing = _differing(there, here)
    if len(differing) != 1:
        return not differing
    then, now = differing[0]
    with suppress(TargetError):
        file = source_of(here)
        if file is None or now.resolve() != (file := file.resolve()):
            return False
        has_its_name = then.name in (now.name, file.name)
        return then.resolve() == file or (has_its_name and difference(digest, digest_of(here)) != "file")
    return False


def are_alike(one: str, other: str) -> bool:
    """Return whether two recorded targets of one study are the same, except for the folder of one Python file."""
    differing = _differing(one, other)
    return len(differing) <= 1 and all(then.suffix == ".py" and then.name == now.name for then, now in differing)


def _differing(there: str, here: str) -> list[tuple[Path, Path]]:
    """Return the words in which two targets differ, by position; an empty path where one has no more words."""
    pairs = zip_longest(_words(there), _words(here), fillvalue="")
    return [(Path(then), Path(now)) for then, now in pairs if then != now]


def _words(target: str) -> list[str]:
    return [PREFIX, *Command.split(target)] if is_command(target) else [*halves(target)]


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
