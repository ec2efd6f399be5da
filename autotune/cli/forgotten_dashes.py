"""The line that was probably meant where the `--` before a command was forgotten."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from shutil import which
from typing import Any

from autotune.targets.commands.distributed import LAUNCHER_NAMES, PYTHON
from autotune.targets.commands.recognition.typed_target import is_unnamed


def with_dashes(command: str, parameters: Iterable[Any], words: Sequence[str]) -> str:
    """Return the line of `autotune command` with `--` before the command that is in `words`; empty if none is.

    `parameters` are autotune's own. Its options after a script are its own if the script does not know them.
    """
    takes_value = {name: not one.is_flag for one in parameters if hasattr(one, "is_flag") for name in _names(one)}
    start = _start(words, takes_value)
    if start is None or not _begins_command(words[start]):
        return ""
    typed = list(words[start:])
    if typed[0].endswith(".py"):
        typed.insert(0, "python")
    ours, theirs = _shared_out(typed, takes_value)
    return shlex.join(["autotune", command, *words[:start], *ours, "--", *theirs])


def _begins_command(word: str) -> bool:
    name = Path(word).name
    return name.endswith(".py") or bool(PYTHON.match(name)) or name in LAUNCHER_NAMES or which(word) is not None


def _names(one: Any) -> list[str]:
    return [*one.opts, *one.secondary_opts]


def _start(words: Sequence[str], takes_value: dict[str, bool]) -> int | None:
    """Return the place of the first word that is neither an option of autotune nor its value; None: not known."""
    at = 0
    while at < len(words):
        name, equals, _ = words[at].partition("=")
        if not name.startswith("-"):
            return at
        if name not in takes_value:
            return None
        at += 2 if takes_value[name] and not equals else 1
    return None


def _is_unquoted(option: str, script: str) -> bool:
    """Return whether an option of one letter is not written in the script."""
    return (
        len(option) == len("-t")
        and Path(script).is_file()
        and not re.search(f"['\"]{re.escape(option)}['\"]", Path(script).read_text("utf-8", "replace"))
    )


def _shared_out(typed: Sequence[str], takes_value: dict[str, bool]) -> tuple[list[str], list[str]]:
    """Return autotune's own options behind the script in these words of a command, and the rest of the words."""
    script = next((at for at, word in enumerate(typed) if word.endswith(".py")), len(typed))
    ours, theirs, rest = list[str](), list(typed[: script + 1]), iter(typed[script + 1 :])
    for word in rest:
        name, equals, _ = word.partition("=")
        is_ours = name in takes_value and (is_unnamed(name, typed) or _is_unquoted(name, typed[script]))
        value = [next(rest, "")] if is_ours and takes_value[name] and not equals else []
        (ours if is_ours else theirs).extend([word, *value])
    return ours, theirs
