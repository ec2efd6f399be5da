"""`autotune search --dry-run`: what a search would begin with, or why it would not begin."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from autotune.cli.output import say, say_json
from autotune.errors import AutotuneError, EnvironmentUnfit, StudyError

if TYPE_CHECKING:
    from autotune.core.records import StudyRequest
    from autotune.preparation.fleet_settings import FleetSettings
    from autotune.preparation.settings import Settings


def print_preview(settings: Settings, began: float, fleet: FleetSettings | None = None, *, as_json: bool) -> None:
    """Print what a search would begin with; then raise what a search would raise.

    `began` is when this command was called, in seconds of `time.monotonic`; the time budget counts from then on.
    `fleet` is what would measure; neither its database nor its Ray cluster is connected to.
    """
    from autotune.cli.saying_launcher import SayingLauncher
    from autotune.fleet.address import checked_address, printable_address
    from autotune.fleet.on_ray import check_cluster
    from autotune.launch.subprocess import SubprocessLauncher
    from autotune.preparation.header import opening_lines
    from autotune.preparation.not_searched import not_searched
    from autotune.preparation.open_study import preview
    from autotune.preparation.place import place_aside
    from autotune.preparation.ranks import rank_environ
    from autotune.preparation.short_budget import budget_note
    from autotune.study.disk import read_asked

    others = ""
    if fleet is not None:
        address = printable_address(checked_address(fleet.storage))
        others = f"The workers of {address} would measure, and not this machine."
    if fleet is not None and fleet.on is not None:
        check_cluster(fleet.on, settings.device)
        others += f" Ray would start them on {fleet.on}."
    with SubprocessLauncher(isolation=settings.isolation, environ=rank_environ(settings)) as launcher:
        request, space, seconds = preview(settings, SayingLauncher(launcher), lasts=True)
    resumed, refusal = _begins(settings, request)
    if as_json:
        asked = {
            "request": request,
            "configuration_count": len(space.configs),
            "configurations": [config.values for config in space.around()],
            "not_searched": not_searched(request, space, settings),
        }
        say_json(asked)
    else:
        lines = opening_lines(
            settings.folder, request, space, settings, resumed=resumed, refused=refusal is not None,
            seeds=[one.seed for one in read_asked(settings.folder)] if resumed else (),
        )  # fmt: skip
        aside = place_aside(settings.folder) if settings.mode == "fresh" else None
        moves = f"A search would move the study in {settings.folder} to {aside}." if aside else ""
        short = "" if resumed else budget_note(settings, request, space, seconds, time.monotonic() - began)
        for line in filter(None, (*lines, short, others, moves, "Nothing was probed (--dry-run).")):
            say(line)
    if refusal is not None:
        raise refusal


def _begins(settings: Settings, request: StudyRequest) -> tuple[bool, AutotuneError | None]:
    """Return whether a search would continue a study, and the error if it would not begin at all."""
    from autotune.launch.base import RESULT
    from autotune.preparation.open_study import check_alike, check_resumable
    from autotune.preparation.place import check_place
    from autotune.study import disk

    folder = settings.folder
    is_lost = (folder / disk.PROBES).is_dir() and not (folder / disk.STUDY).exists()
    is_rebuilt = is_lost and (folder / disk.INSPECT / RESULT).is_file()
    try:
        check_place(settings)
        disk.check_writable(folder)
        if is_rebuilt:
            return settings.mode != "fresh", None
        earlier = check_resumable(folder, settings.mode)
        if earlier is not None:
            check_alike(folder, earlier, request)
        return earlier is not None, None
    except (StudyError, EnvironmentUnfit) as error:
        return False, error
