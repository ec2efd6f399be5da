"""`autotune report`: a study as one file to send, keep, or print; one of its charts; or a comment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from autotune.cli.target import StudyArgument
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.study.recommendation import Recommendation
    from autotune.study.view import StudyView

CARD = "card"
PAGE, MARKDOWN, PICTURES = (".html", ".htm"), (".md", ".txt"), (".svg", ".png")


def report(
    study: StudyArgument = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write. [default: report.html, or CHART.svg, in the study]"),
    ] = None,
    chart: Annotated[
        str | None,
        typer.Option(
            "--chart",
            help="Only this picture, as SVG, or with -o NAME.png as PNG: finalists, step, ranks, settings, throughput, "
            "precision, history; or card, the answer as a picture.",
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the answer as a comment for a pull request.")
    ] = False,
) -> None:
    """Write a study as an HTML page, Markdown or a chart.

    The page needs no network and no other file.
    """
    from autotune.cli.output import say, write
    from autotune.report.page import render
    from autotune.study.disk import find
    from autotune.study.view import load_view

    if markdown and chart is not None:
        raise UsageError(
            "--markdown and --chart do not go together. One is a text, the other a picture. "
            "Give one of the two, and run the command again for the other."
        )
    if output is not None and chart is None:
        _check_ending(output, markdown=markdown)
    view = load_view(find(study))
    if markdown and output is None:
        sys.stdout.write(_markdown(view))
        return
    place = output or view.folder / (f"{chart}.svg" if chart else "report.html")
    if chart is not None:
        write(place, _draw(chart, place, view))
    elif markdown:
        write(place, _markdown(view))
    else:
        between = os.path.relpath(view.folder.resolve(), place.resolve().parent)
        write(place, render(view, prefix="" if between == "." else f"{quote(Path(between).as_posix())}/"))
    say(place)


def _check_ending(output: Path, *, markdown: bool) -> None:
    """Raise `UsageError` for the name of a file whose ending does not fit its contents."""
    kind, endings = ("Markdown", MARKDOWN) if markdown else ("an HTML page", PAGE)
    if output.suffix.lower() not in ("", *endings):
        raise UsageError(
            f"{output} would hold {kind}, whatever its name says. A report is {' or '.join(PAGE)}, with --markdown "
            f"{' or '.join(MARKDOWN)}, and with --chart {' or '.join(PICTURES)}. Choose the ending that fits; a "
            f"browser prints the page as PDF."
        )


def _markdown(view: StudyView) -> str:
    from autotune.report.markdown import markdown

    return markdown(view, _answer(view))


def _answer(view: StudyView) -> Recommendation:
    from autotune.study.recommendation import load_result

    return view.recommendation or load_result(view.folder)


def _draw(name: str, place: Path, view: StudyView) -> str | bytes:
    """Return the chart as SVG or PNG. Raises `UsageError` for an unknown one, another format, or one without data."""
    from autotune.report.card import card
    from autotune.report.raster import png

    kind = place.suffix.lower()
    if kind not in (*PICTURES, ""):
        raise UsageError(
            f"{place} is neither .svg nor .png. Charts are drawn as SVG, which scales and which "
            f"every browser and most programs read. Write to -o {place.with_suffix('.svg')}."
        )
    svg = card(view, _answer(view)) if name == CARD else _chart(name, view)
    return png(svg) if kind == ".png" else svg


def _chart(name: str, view: StudyView) -> str:
    from autotune.report.chart import Absence
    from autotune.report.charts import CHARTS

    if name not in CHARTS:
        raise UsageError(
            f"There is no chart {name!r}. It was probably misspelt. Choose one of --chart {', '.join([*CHARTS, CARD])}."
        )
    drawn = CHARTS[name](view)
    if isinstance(drawn, Absence):
        raise UsageError(
            f"{view.folder} has nothing for the chart {name!r}: {drawn.reason}. The study was probably made without "
            f"it, or ended before. Look with `autotune report {view.folder}` at what it has."
        )
    return drawn.file()
