"""A chart in two sizes, in words, and as the table of its numbers; or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap

from autotune.harmless import markup
from autotune.report.drawing import NARROW, WIDE, Size, text
from autotune.sentences import capitalized

TAKEAWAY_CHARACTERS = 66  # characters of a line of the takeaway above a chart
EDGE = 12  # pixels around a chart that is a file
CHART_STYLE = (Path(__file__).parent / "chart.css").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Numbers as text; the first column has the names of the rows."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart, which answers one question of the page."""

    name: str  # its name in `autotune report --chart`
    title: str
    summary: str  # a text that replaces the chart where it cannot be seen
    table: Table
    draw: Callable[[Size], list[str]]  # the shapes and texts at that size, escaped
    takeaway: str = ""  # its answer in a clause
    note: str = ""  # how to read it
    height: int | None = None  # of a list of rows, in pixels; None: as tall as its size says

    def svg(self, size: Size = WIDE) -> str:
        """Return the chart for the page, which defines colours and fonts."""
        size = size if self.height is None else replace(size, height=self.height)
        start = f'<svg xmlns="http://www.w3.org/2000/svg" class="{size.kind}" role="img" '
        start += f'aria-label="{markup(self.summary)}" viewBox="0 0 {size.width} {size.height}">'
        return f"{start}{''.join(self.draw(size))}</svg>"

    @property
    def narrow(self) -> str:
        """Return the chart for a telephone: not the wide one made smaller, whose texts could not be read."""
        return self.svg(NARROW)

    def file(self) -> str:
        """The chart with title and takeaway as an SVG file that needs no page, light or dark as its reader is."""
        lines = [
            ("title", self.title),
            *(("takeaway", line) for line in wrap(capitalized(self.takeaway), TAKEAWAY_CHARACTERS)),
        ]
        head = "".join(text(EDGE + 4, EDGE + 20 * row + 14, line, kind) for row, (kind, line) in enumerate(lines))
        top, height, wide = EDGE + 20 * len(lines) + 10, self.height or WIDE.height, WIDE.width + 2 * EDGE
        drawn = self.svg().replace("<svg ", f'<svg x="{EDGE}" y="{top}" width="{WIDE.width}" height="{height}" ', 1)
        size = f'width="{2 * wide}" viewBox="0 0 {wide} {top + height + EDGE}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
            f'<style>{CHART_STYLE}</style><rect class="paper" width="100%" height="100%"/>{head}{drawn}</svg>\n'
        )


@dataclass(frozen=True, kw_only=True)
class Absence:
    """A question that this study cannot answer, and why."""

    name: str
    title: str
    reason: str  # one sentence without its full stop
    is_told: bool = True  # on the page; False: nobody would ask
