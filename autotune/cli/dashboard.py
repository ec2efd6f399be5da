"""`autotune dashboard`: the page of a study, served on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def dashboard(
    study: Annotated[Path | None, typer.Argument(help="A study, or a folder of studies. [default: studies/]")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8088,
    host: Annotated[str, typer.Option(help="A loopback address; others are refused.")] = "127.0.0.1",
) -> None:
    """Serve a page that shows the recommendation, the curves and every probe; read-only, for this machine only."""
    from autotune.folder import STUDIES, find
    from autotune.report.dashboard import serve

    place = study or STUDIES
    if not place.is_dir():
        place = find(study)
    serve(
        place,
        host,
        port,
        on_ready=lambda address: typer.echo(f"serving {place} at {address} (read-only), Ctrl-C stops it"),
    )
