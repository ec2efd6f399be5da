"""The line that was probably meant where the `--` before a command was forgotten, or the quotes around it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from shutil import which
from typing import Any

from autotune.study.disk import STUDIES
from autotune.targets.commands.distributed import LAUNCHER_NAMES, PYTHON
from autotune.targets.commands.recognition.typed_target import is_unnamed


def with_dashes(command: str, parameters: Iterable[Any], words: Sequence[str]) -> str:
    """Return the line of `autotune command` with `--` before the command that is in `words`; empty if none is.

    `parameters` are autotune's own. Its options after a script are its own if the script does not know them.
    """
    takes_value = _takes_value(parameters)
    start = _start(words, takes_value)
    if start is None or not _begins_command(words[start]):
        return ""
    typed = list(words[start:])
    if typed[0].endswith(".py"):
        typed.insert(0, "python")
    ours, theirs = _shared_out(typed, takes_value)
    return shlex.join(["autotune", command, *words[:start], *ours, "--", *theirs])


def with_quotes(command: str, parameters: Iterable[Any], words: Sequence[str]) -> str:
    """Return the line of `autotune command` with each command in `words` in quotes; empty if none lacks them.

    `parameters` are autotune's own, as in `with_dashes`.
    """
    takes_value = _takes_value(parameters)
    starts = [
        at for at, word in enumerate(words[:-1])
        if _is_launcher(word) and not (STUDIES / word).exists() and not takes_value.get(words[at - 1] if at else "")
    ]  # fmt: skip
    if "--" in words:
        dashes = words.index("--")
        is_command = any(word.startswith("-") for word in words[dashes + 1 :]) or any(at > dashes for at in starts)
        starts = [at for at, word in enumerate(words) if word == "--"] if is_command else []
    if not starts:
        return ""
    ours, commands = list(words[: starts[0]]), list[str]()
    for at, end in zip(starts, [*starts[1:], len(words)], strict=True):
        typed = [word for word in words[at:end] if word != "--"]
        if typed[:1] and typed[0].endswith(".py"):
            typed.insert(0, "python")
        own, typed = _shared_out(typed, {} if "--" in words else takes_value)
        ours += own
        commands += [shlex.join(typed)] if typed else []
    return " ".join([shlex.join(["autotune", command, *ours]), *map(_quoted, commands)])


def _quoted(command: str) -> str:
    """Return the command in the double quotes that every shell knows, if nothing in it has a meaning there."""
    return shlex.quote(command) if re.search(r'["$`\\!]', command) else f'"{command}"'


def _takes_value(parameters: Iterable[Any]) -> dict[str, bool]:
    return {name: not one.is_flag for one in parameters if hasattr(one, "is_flag") for name in _names(one)}


def _is_launcher(word: str) -> bool:
    name = Path(word).name
    return bool(PYTHON.match(name)) or name in LAUNCHER_NAMES


def _begins_command(word: str) -> bool:
    return word.endswith(".py") or _is_launcher(word) or which(word) is not None


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
