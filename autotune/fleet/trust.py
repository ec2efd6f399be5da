"""What a worker accepts from the database: no code, no command, and requests for the target that it has itself.

Whoever may write into the database may choose configurations and budgets; what is run is the worker's own.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from autotune.core.measurements import decode
from autotune.core.records import PROTOCOL_VERSION, Environment
from autotune.core.requests import ProbeRequest, Request
from autotune.errors import StudyError, TargetError
from autotune.fleet.records import QueuedStudy
from autotune.knobs import KNOBS
from autotune.profile.records import ProfileRequest
from autotune.sentences import first_few
from autotune.study.identity import MOST_DIFFERENCES, machine_differences
from autotune.targets.commands.command import is_command
from autotune.targets.commands.program import starts_ranks
from autotune.targets.reference import parse
from autotune.targets.source import difference, digest_of, is_same, modules_of, unfound


def own_target(study: QueuedStudy, given: str | None) -> str:
    """Return the target that this worker runs: the one `given` here, else the study's file in the working folder.

    Raises `StudyError` unless it is the one that the search has, by its digest, and imports the same files.
    """
    if given is None:
        given = _in_this_folder(study)
    if is_command(given) or is_command(study.target):
        if not is_same(study.target, study.target_digest, given):
            raise StudyError(
                f"The study {study.name} runs the command `{study.target}`, and this worker `{given}`. A command is "
                f"not taken from the database. Give the worker the search's own, behind --."
            )
    elif not study.target_digest and given != study.target:
        raise StudyError(
            f"The study {study.name} trains {study.target}, which is installed code, and this worker {given}. Such a "
            f"target is not taken from the database. Give the worker the search's own."
        )
    differs = difference(study.target_digest, here := digest_of(given))
    if differs == "unfound":
        raise StudyError(
            f"{given} imports modules of your own where the study {study.name} is searched that are not found from "
            f"this folder, {Path.cwd()}: {unfound(study.target_digest, here)}. PYTHONPATH is probably not set as it is "
            f"there, or the files are missing here. Set it for the worker as for the search, or bring the files here."
        )
    if differs == "imports":
        raise StudyError(
            f"{given} imports other code here ({modules_of(given)}) than where the study {study.name} is searched: "
            f"their digests differ. One of the checkouts was probably changed, or PYTHONPATH is another one. Bring "
            f"both to the same state."
        )
    if differs:
        raise StudyError(
            f"{given} is another file here than {study.target} where the study {study.name} is searched: their digests "
            f"differ. One of the checkouts was probably changed, or another file named. Bring both to the same state, "
            f"or name the search's own."
        )
    return given


def _in_this_folder(study: QueuedStudy) -> str:
    """Return the study's target if that is a file in the working folder; nothing else is taken from the database."""
    reference = None
    with suppress(TargetError):  # there is no such file here
        reference = None if is_command(study.target) else parse(study.target)
    file = reference.file if reference is not None else None
    if file is None or not file.is_relative_to(Path.cwd()):
        raise StudyError(
            f"The study {study.name} trains {study.target}, which is no file in this folder. A worker runs nothing "
            f"else that the database names. Go into the folder of the search's checkout, or name the target here."
        )
    return study.target


def class_of(study: QueuedStudy, environment: Environment) -> Environment:
    """Return the class of machines of a study, in which `environment` was found, as the queue holds it.

    Ranks are given their threads when they are started, and only they note the variables of NCCL: a worker that joins
    inspects its machine with one process, so that both are left out.
    """
    has_ranks = study.ranks > 1 or starts_ranks(study.target)
    return replace(environment, default_threads=None, nccl=()) if has_ranks else environment


def class_differences(known: Environment, here: Environment) -> list[str]:
    """Return what keeps a worker's machine out of a class, in words; see `class_of`.

    Allocators count, too: probes of one study would be measured with several, and a worker may lack one that it tries.
    """
    if known.default_threads is None:
        here = replace(here, default_threads=None, nccl=known.nccl)
    differences = machine_differences(known, here)
    lacks = not set(known.mallocs) <= set(here.mallocs)
    for what, then, now, differs in (
        ("variables of allocators", known.variables, here.variables, known.variables != here.variables),
        ("mallocs", known.mallocs, here.mallocs, lacks),
    ):
        if differs:
            differences.append(f"the machine's {what} were {', '.join(then) or 'none'}, are {', '.join(now) or 'none'}")
    return differences


def check_class(study: QueuedStudy, here: Environment) -> None:
    """Raise `StudyError` if this machine is of another class than the study's, so that nothing could be compared."""
    differences = [] if study.environment is None else class_differences(study.environment, here)
    if differences:
        raise StudyError(
            f"This machine is of another class than the study {study.name}: "
            f"{first_few(differences, MOST_DIFFERENCES, '; ')}. "
            f"Measurements of different machines cannot be compared. Begin a study of its own for this class."
        )


def accepted(text: str, study: QueuedStudy, target: str, here: Environment) -> Request[Any]:
    """Return a request from the queue as this worker carries it out: with its own target and device.

    Raises `StudyError` for what is no request of that study.
    """
    try:
        request = decode(text.encode())
        _check(request, study)
    except (msgspec.MsgspecError, ValueError, LookupError) as error:
        raise StudyError(
            f"The study {study.name} asks for what a search does not ask: {error}. Another version of autotune "
            f"probably searches, or somebody else wrote into the database. Use one version on all machines."
        ) from None
    request = replace(request, target=target)
    if request.device is not None:
        request = replace(request, device=here.device)
    return replace(request, device_uuid=here.device_uuid) if isinstance(request, ProbeRequest) else request


def _check(request: Request[Any], study: QueuedStudy) -> None:
    if request.protocol != PROTOCOL_VERSION:
        raise ValueError(f"protocol {request.protocol} is not {PROTOCOL_VERSION}")
    if request.target != study.target:
        raise ValueError(f"the target {request.target} is not {study.target}")
    if isinstance(request, ProfileRequest) and request.output is not None:
        raise ValueError(f"the output folder {request.output} would be one of the worker's")
    for one in KNOBS:  # some become variables of the process, each knob of those it knows
        if one.name in (values := request.process_config().values):
            one.check(values[one.name])
