"""Beginning a study anew or going on with it, and refusing to mix what cannot be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from autotune import codec
from autotune import folder as disk
from autotune.environment import fingerprint
from autotune.errors import StudyError, StudyNotFound
from autotune.launch.base import RESULT
from autotune.launch.files import store
from autotune.records import Environment, StudyRequest, TargetFacts
from autotune.results import Inspection
from autotune.study import Lock
from autotune.tuning.prepare import settle
from autotune.tuning.settings import Settings

# What may differ between two runs of one study: when, how the machine's free memory stood, how fast a step was.
MOST_TOLD = 3  # differences: the first ones are what the user changed, the rest follows from them
VOLATILE = ("created_at", "enforced_limit_bytes", "seed")
# What varies among machines of one fingerprint besides, or on one of them from boot to boot.
VARIED = ("device_uuid", "device_bytes", "host_bytes", "platform", "python")


def begin(
    folder: Path, lock: Lock, request: StudyRequest, mode: Literal["auto", "resume", "fresh"]
) -> tuple[Path, Lock, bool]:
    """The folder, locked, with study.json in place; and whether an earlier search is being continued.

    With `fresh` an earlier study is moved aside, never deleted. Raises `StudyError` if the study there was made
    under other circumstances or lost its study.json, `StudyNotFound` if `resume` finds nothing.
    """
    check_resumable(folder, mode)
    if mode != "fresh" and _is_alike(folder, request):
        return folder, lock, True
    if (folder / disk.STUDY).is_file() or (folder / disk.PROBES).is_dir():
        lock.release()
        _move_aside(folder)
        disk.make(folder)
        lock = Lock(folder)
    try:
        if not (folder / ".gitignore").exists():  # the folder may have been somebody's before
            (folder / ".gitignore").write_text(disk.IGNORED)
        codec.write(folder / disk.STUDY, request)
    except OSError as error:
        raise disk.unwritable(folder, error) from error
    return folder, lock, False


def check_alike(folder: Path, request: StudyRequest) -> bool:
    """Whether a study lies there; raises `StudyError` if it was made under other circumstances than `request`."""
    if not (folder / disk.STUDY).is_file():
        return False
    differences = compare(disk.read_request(folder), request)
    if differences:
        raise StudyError(
            f"{folder} was searched under other circumstances: {_told(differences)}. Its probes cannot be compared "
            f"with new ones. Use --fresh (the old study is moved aside) or another --study."
        )
    return True


def check_resumable(folder: Path, mode: Literal["auto", "resume", "fresh"]) -> None:
    """Raise what `begin` would raise for a damaged study.json or none; asked before anything is made or looked at."""
    if mode == "fresh":
        return
    if (folder / disk.STUDY).is_file():
        disk.read_request(folder)
        return
    if (folder / disk.PROBES).is_dir():
        raise StudyError(
            f"{folder} holds {len(disk.read_asked(folder))} probes but no {disk.STUDY}, nor the inspection of which "
            f"that could be rebuilt. They were probably deleted, and nobody can tell on which machine the probes ran. "
            f"Use --fresh (the folder is moved aside) or another --study."
        )
    if mode == "resume":
        raise StudyNotFound(
            f"{folder} holds no study that could be resumed. The name is probably another one. "
            f"Leave --resume out to begin it."
        )


def rebuild(settings: Settings) -> str:
    """Write a study.json that is lost anew, from the inspection of then and `settings`; what was done, if anything.

    Target, machine and baseline of the probes are known, so other ones are refused as ever. What else an earlier
    command asked (objective, limits) is not: the probes are judged by what this one asks. Raises `StudyError` where
    they were asked something else, and `UsageError` as `settle` does.
    """
    folder = settings.folder
    if settings.mode == "fresh" or (folder / disk.STUDY).exists() or (found := _inspection(folder)) is None:
        return ""
    request, _ = settle(settings, *found)
    asked = disk.read_asked(folder)
    differences = [f"target was {one.target}, is {request.target}" for one in asked if one.target != request.target]
    differences += [
        f"baseline was {_short(one.config.values)}, is {_short(request.baseline.values)}"
        for one in asked
        if one.purpose == "baseline" and one.config != request.baseline
    ]
    if differences:
        raise StudyError(
            f"{folder} holds {len(asked)} probes and no {disk.STUDY}, and this command asks for something else: "
            f"{_told(list(dict.fromkeys(differences)))}. Give what was given then, and the study is rebuilt. Or use "
            f"--fresh (the folder is moved aside) or another --study."
        )
    try:
        codec.write(folder / disk.STUDY, request)
    except OSError as error:
        raise disk.unwritable(folder, error) from error
    return (
        f"{disk.STUDY} was missing: rebuilt from the inspection and what {len(asked)} probes were asked. Objective and "
        f"limits are those of this command."
    )


def _inspection(folder: Path) -> tuple[Environment, TargetFacts] | None:
    """Machine and target as they were when the study was last searched; None: not known."""
    path = folder / disk.INSPECT / RESULT
    if not path.is_file() or not (folder / disk.PROBES).is_dir():
        return None
    found = codec.read(path, Inspection)
    return None if found.environment is None or found.facts is None else (found.environment, found.facts)


def _is_alike(folder: Path, request: StudyRequest) -> bool:
    """`check_alike`; the inspection of a search that is refused does not take the place of the study's own."""
    try:
        return check_alike(folder, request)
    except StudyError:
        own = disk.read_request(folder)
        kept = Inspection(environment=own.environment, facts=own.facts)
        store(disk.make(folder / disk.INSPECT), RESULT, kept)
        raise


def compare(old: StudyRequest, new: StudyRequest) -> list[str]:
    """What sets two requests apart, in words; empty if their trials can be compared."""
    if old.environment.default_threads is None:  # an earlier version did not note them
        noted = replace(old.environment, default_threads=new.environment.default_threads)
        old = replace(old, environment=noted)
    if fingerprint(old.environment) == fingerprint(new.environment):
        varied = {name: getattr(new.environment, name) for name in VARIED}
        old = replace(old, environment=replace(old.environment, **varied))
    return [
        f"{name} was {_short(before)}, is {_short(after)}"
        for name, before, after in _differences("", msgspec.to_builtins(old), msgspec.to_builtins(new))
    ]


def _differences(path: str, old: Any, new: Any) -> list[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        found: list[tuple[str, Any, Any]] = []
        for key in dict.fromkeys((*old, *new)):
            if key not in (*VOLATILE, "step", "findings", "shm_bytes"):
                found += _differences(f"{path}.{key}".lstrip("."), old.get(key), new.get(key))
        return found
    return [] if old == new else [(path, old, new)]


def _told(differences: list[str]) -> str:
    more = len(differences) - MOST_TOLD
    return "; ".join(differences[:MOST_TOLD]) + (f"; and {more} more" if more > 0 else "")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _move_aside(folder: Path) -> Path:
    number = 1
    while (aside := folder.with_name(f"{folder.name}.old-{number}")).exists():
        number += 1
    try:
        return folder.rename(aside)
    except OSError as error:
        raise disk.unwritable(folder, error) from error
