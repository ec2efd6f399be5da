"""The state of a search, seen from outside: whether one runs, and why a folder contains no study yet."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from autotune.core import codec
from autotune.core.requests import ProbeRequest
from autotune.core.results import Inspection
from autotune.harmless import shell_word
from autotune.launch.base import LOG, RESULT
from autotune.sentences import first_few
from autotune.units import counted

LOCK = "study.lock"
MOST_NAMED = 10  # studies in an error


def is_running(folder: Path) -> bool:
    """Return whether a process holds the lock; tested by a shared lock that is released at once."""
    try:
        # Neither a link to another place nor a pipe without a writer may block the reader.
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
    return False


def not_begun(folder: Path, inspected: Path) -> str:
    """Return why a folder in which a search was begun contains no study; `inspected` is that of its inspection."""
    if is_running(folder):
        return f"{folder} is being searched now, and has no probe yet. Its target is probably being inspected. Wait."
    found = codec.read(inspected / RESULT, Inspection).why
    why = f": {found}" if found else ""
    return (
        f"{folder} is not a study yet: its search ended before the first probe{why}. The target probably has a "
        f"mistake. Correct it, and search again. Full log: {inspected / LOG}"
    )


def answer_anew(folder: Path) -> str:
    """Return what makes the damaged best.json of the study in `folder` anew."""
    if (folder / ProbeRequest.FOLDER).is_dir():
        return "The probes are kept: run the command that searched it once more, and it writes the answer anew."
    return "The probes are not kept here: copy the file again from where it came, or search again."


def only_answered(folder: Path) -> str:
    """Return why `folder`, which has an answer and no study.json, is not a whole study."""
    return (
        f"{folder} is not a whole study: it has best.json and no study.json, which was probably lost or not kept. "
        f"`autotune best {shell_word(str(folder))}` needs no more than that. For all else run the command that "
        f"searched it once more: it rebuilds that file, if {folder}/probes and {folder}/inspect are there, too."
    )


def no_study(name: str | Path, place: Path, probes: int, meant: Sequence[Path], known: Sequence[Path]) -> str:
    """Return why `place`, which was asked for as `name`, is no study, and what to name instead.

    `probes` are there without a study; `meant` are studies that the name may stand for, `known` those of this folder.
    """
    if place.is_dir() and probes:
        return (
            f"{place} is not a study: it has {counted(probes, 'probe')} and no study.json, which was probably lost. "
            f"Run the command that searched it once more: it rebuilds that file, if {place}/inspect is there, too."
        )
    if place.is_dir():
        is_empty = not any(place.iterdir())
        likely = (
            "It is empty, so the search probably wrote elsewhere" if is_empty else "Another folder was probably meant"
        )
        why = f"{place} is not a study: it has no study.json. {likely}"
    elif place.exists():
        why = f"{place} is a file, and a study is a folder. Another name was probably meant"
    else:
        why = f"{name} does not exist. It was probably mistyped, or searched from another folder than {Path.cwd()}"
    if near := [*meant, *(one for one in known if get_close_matches(place.name, [one.name]))]:
        return f"{why}. Did you mean {near[0]}?"
    if not known:
        return f"{why}. There is no study here yet: run `autotune search model.py` first."
    return f"{why}. Studies here: {first_few(list(map(str, known)), MOST_NAMED)}. Name one of them, or search first."
