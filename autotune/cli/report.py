"""`autotune report`: a study as one file that can be sent, kept, or printed; or one of its charts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.study.view import StudyView


def report(
    study: Annotated[str | None, typer.Argument(help="Folder or name of a study. [default: the newest]")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write. [default: report.html, or CHART.svg, in the study]"),
    ] = None,
    chart: Annotated[
        str | None, typer.Option("--chart", help="Only this chart, as SVG: throughput, memory, loading, ...")
    ] = None,
) -> None:
    """Write a study as one HTML page, or one chart of it as SVG.

    The page needs no network and no other file.
    """
    from autotune.cli.output import say, write
    from autotune.report.page import render
    from autotune.study.layout import find
    from autotune.study.view import load_view

    view = load_view(find(study))
    place = output or view.folder / (f"{chart}.svg" if chart else "report.html")
    if chart is None:
        between = os.path.relpath(view.folder.resolve(), place.resolve().parent)
        write(place, render(view, prefix="" if between == "." else f"{quote(Path(between).as_posix())}/"))
    else:
        write(place, _draw(chart, place, view))
    say(place)


def _draw(name: str, place: Path, view: StudyView) -> str:
    """The chart as SVG. Raises `UsageError` for an unknown one, another format, or one without data."""
    from autotune.report.chart import Absence
    from autotune.report.charts import CHARTS, EARLIER_NAMES

    name = EARLIER_NAMES.get(name, name)
    if name not in CHARTS:
        raise UsageError(
            f"There is no chart {name!r}. It was probably misspelt, or is one of an earlier version. "
            f"Choose one of --chart {', '.join(CHARTS)}."
        )
    if place.suffix.lower() not in (".svg", ""):
        raise UsageError(
            f"{place} would have to be another format than SVG. Charts are drawn as SVG only, which scales and which "
            f"every browser and most programs read. Write to -o {place.with_suffix('.svg')}."
        )
    drawn = CHARTS[name](view)
    if isinstance(drawn, Absence):
        raise UsageError(
            f"{view.folder} has nothing for the chart {name!r}: {drawn.reason}. The study was probably made without "
            f"it, or ended before. Look with `autotune report {view.folder}` at what it has."
        )
    return drawn.file()
