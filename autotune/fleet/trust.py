"""What a worker accepts from the database: no code, no command, and requests for the target that it has itself.

Whoever may write into the database may choose configurations and budgets; what is run is the worker's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from autotune.core.measurements import decode
from autotune.core.records import PROTOCOL, Environment
from autotune.core.requests import ProbeRequest, ProfileRequest, Request
from autotune.errors import StudyError
from autotune.fleet.records import StudyCard
from autotune.knobs import KNOBS
from autotune.sentences import first_few
from autotune.study.identity import machine_differences
from autotune.targets.commands.command import is_command
from autotune.targets.reference import parse
from autotune.targets.source import digest_of

MOST_TOLD = 3  # differences of two machines


def own_target(card: StudyCard, given: str | None) -> str:
    """Return the target that this worker runs: the one `given` here, else the study's file in the working folder.

    Raises `StudyError` unless it is the one that the search has, by its digest.
    """
    if given is None:
        given = _in_this_folder(card)
    if is_command(given) or is_command(card.target):
        if given != card.target:
            raise StudyError(
                f"The study {card.name} runs the command `{card.target}`, and this worker `{given}`. A command is not "
                f"taken from the database. Give the worker the search's own, behind --."
            )
    elif not card.target_digest and given != card.target:
        raise StudyError(
            f"The study {card.name} trains {card.target}, which is installed code, and this worker {given}. Such a "
            f"target is not taken from the database. Give the worker the search's own."
        )
    if digest_of(given) != card.target_digest:
        raise StudyError(
            f"{given} is another file here than {card.target} where the study {card.name} is searched: their digests "
            f"differ. One of the checkouts was probably changed, or another file named. Bring both to the same state, "
            f"or name the search's own."
        )
    return given


def _in_this_folder(card: StudyCard) -> str:
    """Return the study's target if that is a file in the working folder; nothing else is taken from the database."""
    reference = None if is_command(card.target) else parse(card.target)
    file = reference.file if reference is not None else None
    if file is None or not file.is_relative_to(Path.cwd()):
        raise StudyError(
            f"The study {card.name} trains {card.target}, which is no file in this folder. A worker runs nothing else "
            f"that the database names. Go into the folder of the search's checkout, or name the target here."
        )
    return card.target


def check_class(card: StudyCard, here: Environment) -> None:
    """Raise `StudyError` if this machine is of another class than the study's, so that nothing could be compared."""
    differences = [] if card.environment is None else machine_differences(card.environment, here)
    if differences:
        raise StudyError(
            f"This machine is of another class than the study {card.name}: {first_few(differences, MOST_TOLD, '; ')}. "
            f"Measurements of different machines cannot be compared. Begin a study of its own for this class."
        )


def accepted(text: str, card: StudyCard, target: str, here: Environment) -> Request[Any]:
    """Return a request from the queue as this worker carries it out: with its own target and device.

    Raises `StudyError` for what is no request of that study.
    """
    try:
        request = decode(text.encode())
        _check(request, card)
    except (msgspec.MsgspecError, ValueError, LookupError) as error:
        raise StudyError(
            f"The study {card.name} asks for what a search does not ask: {error}. Another version of autotune probably "
            f"searches, or somebody else wrote into the database. Use one version on all machines."
        ) from None
    request = replace(request, target=target)
    if request.device is not None:
        request = replace(request, device=here.device)
    return replace(request, device_uuid=here.device_uuid) if isinstance(request, ProbeRequest) else request


def _check(request: Request[Any], card: StudyCard) -> None:
    if request.protocol != PROTOCOL:
        raise ValueError(f"protocol {request.protocol} is not {PROTOCOL}")
    if request.target != card.target:
        raise ValueError(f"the target {request.target} is not {card.target}")
    if isinstance(request, ProfileRequest) and request.output is not None:
        raise ValueError(f"the output folder {request.output} would be one of the worker's")
    for one in KNOBS:  # some become variables of the process, each knob of those it knows
        if one.name in (values := request.process_config().values):
            one.check(values[one.name])
