"""Rebuilds a study.json that was lost."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from autotune.core import codec
from autotune.core.records import Environment, TargetFacts
from autotune.core.results import Inspection
from autotune.errors import StudyError
from autotune.launch.base import RESULT
from autotune.launch.files import store
from autotune.preparation.prepare import settle
from autotune.preparation.settings import Settings
from autotune.sentences import first_few
from autotune.study import disk
from autotune.study.identity import MOST_DIFFERENCES
from autotune.targets.source import is_same
from autotune.units import counted


def rebuild(settings: Settings) -> str:
    """Rebuild a lost study.json from the inspection of that time and `settings`; return what was done, if anything.

    Target, machine and baseline of the probes are known, so others are refused as usual. What else an earlier command
    asked (objective, limits) is unknown: the probes are judged by the present settings. Raises `StudyError` if the
    probes were asked something else, and `UsageError` as `settle` does.
    """
    folder = settings.folder
    if settings.mode == "fresh" or (folder / disk.STUDY).exists() or (found := _inspection(folder)) is None:
        return ""
    request, _ = settle(settings, *found)
    request = replace(request, target_digest="")  # nothing is known about the code that was searched
    asked = disk.read_asked(folder)
    targets = [one.target for one in asked if not is_same(one.target, "", request.target)]
    differences = [f"the target was {one}, is {request.target}" for one in targets]
    differences += [
        f"the baseline's {name} was {value}, is {request.baseline[name]}"
        for one in asked
        for name, value in one.config.values.items()
        if one.purpose == "baseline" and value != request.baseline[name]
    ]
    if differences:
        told = first_few([*dict.fromkeys(differences)], MOST_DIFFERENCES, "; ")
        raise StudyError(
            f"{folder} holds {counted(len(asked), 'probe')} and no {disk.STUDY}, and this command asks for something "
            f"else: {told}. Give the earlier settings, and the study is rebuilt. Or use "
            f"--fresh (the folder is moved aside) or another --study."
        )
    store(folder, disk.STUDY, request)
    return (
        f"{disk.STUDY} was missing: rebuilt from the inspection and the requests of {counted(len(asked), 'probe')}. "
        f"Objective and limits are those of this command."
    )


def _inspection(folder: Path) -> tuple[Environment, TargetFacts] | None:
    """Return machine and target as they were when the study was last searched; None if unknown."""
    path = folder / disk.INSPECT / RESULT
    if not path.is_file() or not (folder / disk.PROBES).is_dir():
        return None
    found = codec.read(path, Inspection)
    return None if found.environment is None or found.facts is None else (found.environment, found.facts)
