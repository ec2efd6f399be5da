"""`autotune worker`: measures for a search on another machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from autotune import interrupts
from autotune.cli.options import parameter_of
from autotune.cli.output import say
from autotune.cli.target import CommandArgument, Map, Words, target_text
from autotune.errors import UsageError
from autotune.preparation.fleet_settings import DATABASE, FleetSettings


def worker(
    context: typer.Context,
    target: Words = None,
    *,
    storage: Annotated[
        str | None, parameter_of("storage", FleetSettings, help=f"The database of the search: {DATABASE}.")
    ] = None,
    study: Annotated[
        str, typer.Option("--study", "-s", help="Name of the study: that of its folder, model for studies/model.")
    ],
    map: Map = None,
    command: CommandArgument = None,
    device: Annotated[str | None, parameter_of("device", has_variable=False)] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of this worker in messages and on the page. [default: the machine's, with --device]"),
    ] = None,
) -> None:
    """Measure for an `autotune search --storage` on another machine.

    Start one worker for each device, on any number of machines of one class, in a checkout of the search's code. It
    waits for up to an hour until the search begins. It leaves when the search has ended, and with exit status 3 when
    none began in that hour, or one was interrupted and was not resumed for 10 minutes. It runs only the target that is
    on this machine: the one that you name, or the search's own file. You may stop or kill it at any time: another
    worker then measures its probe.
    """
    from autotune.fleet.address import checked_address
    from autotune.preparation.settings import check_device

    if storage is None:
        raise UsageError(
            f"A worker needs the address of the search's database. It was probably forgotten. Give --storage "
            f"{DATABASE}, or set AUTOTUNE_STORAGE."
        )
    checked_address(storage)
    check_device(device)
    study_name = Path(study).name  # other commands take the name of its folder
    if not study_name:
        raise UsageError(
            f"--study {study!r} names no study. The name of the study's folder was probably left out. Give the "
            f"search's own: --study model for studies/model."
        )
    from autotune.fleet.worker import Worker
    from autotune.targets import resolve

    given = target_text(context, target, command, map, quiet=False) if target or command else None
    if given is not None:
        resolve(given)  # a missing file is an error before the database is asked
    interrupts.heed()
    own_name = name or f"{os.uname().nodename}{f'/{device}' if device else ''}"
    Worker(
        storage, study_name, name=own_name, target=given, device=device, tell=lambda text: say(text, stderr=True)
    ).serve()
