"""`autotune dashboard`: the pages of studies, served and kept up to date."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

DASHBOARD_NICENESS = 10  # of 19: making a page while a search runs gives way to its probes


def dashboard(
    study: Annotated[Path | None, typer.Argument(help="A study, or a folder of studies. [default: studies/]")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8088,
    host: Annotated[
        str, typer.Option(help="The address to listen on; one beyond this machine needs --expose.")
    ] = "127.0.0.1",
    expose: Annotated[
        bool,
        typer.Option(
            "--expose", help="Let other machines read source paths, error texts and logs, without a password."
        ),
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="With --expose: a further name that browsers may ask for. Repeatable.")
    ] = None,
) -> None:
    """Serve pages of studies that follow a running search.

    They show the recommendation, the curves and every probe, and change nothing.
    """
    from autotune.cli.output import say
    from autotune.dashboard import serve
    from autotune.study.disk import STUDIES, find

    place = study or STUDIES
    if study is not None and not place.is_dir():
        place = find(study)  # without a name the first search may not have begun

    def on_ready(address: str) -> None:
        with suppress(OSError):
            os.nice(DASHBOARD_NICENESS)
        say(f"serving {place} at {address} (read-only), Ctrl-C stops it")
        if expose:
            say(
                "exposed: whoever reaches this port can read configurations, source paths, error texts, logs, hardware "
                "and versions of every study in it. There is no password, and nothing is encrypted.",
                stderr=True,
            )

    serve(place, host, port, exposed=expose, names=allow_host or (), on_ready=on_ready)
