"""Arranges the charts of a page in two columns of nearly the same height, so that no place next to a chart is empty.

Their order stays: for a screen reader, on a telephone, and in each column.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from autotune.report.chart import Chart
from autotune.report.drawing import WIDE

ROW = 20  # pixels of a row of the grid: a card has as many as it needs
MOST_ROWS = 48  # a card that needs more grows
FRAME = 130  # pixels of a card beside drawing and sentences: edges, title, the line that opens its numbers, the gap
LINE, CHARACTERS = 21, 75  # of a sentence: pixels of a line, and its characters
NEAR = 3  # rows: columns that differ by less are alike
ROWS_STYLE = "".join(f".rows{count}{{grid-row-end:span {count}}}" for count in range(1, MOST_ROWS + 1))


def arranged(charts: Sequence[Chart]) -> list[tuple[Chart, str]]:
    """Return each chart with the classes of its card: `left rows12`. One alone has the whole width, and no class."""
    if len(charts) < 2:
        return [(chart, "") for chart in charts]
    rows = [_rows(chart) for chart in charts]

    def heights(sides: Sequence[int]) -> list[int]:
        return [sum(count for count, side in zip(rows, sides, strict=True) if side == place) for place in (0, 1)]

    def unevenness(sides: Sequence[int]) -> tuple[int, Sequence[int]]:
        left, right = heights(sides)
        return abs(left - right) // NEAR, sides  # of equal ones: the first question is on the left

    sides = min(((0, *others) for others in itertools.product((0, 1), repeat=len(charts) - 1)), key=unevenness)
    left, right = heights(sides)
    shorter = [index for index, side in enumerate(sides) if side == (right < left)]
    for missing in range(abs(right - left)):  # its cards share what is missing, the last one first
        rows[shorter[-1 - missing % len(shorter)]] += 1
    classes = (
        f"{'right' if side else 'left'} rows{min(count, MOST_ROWS)}" for side, count in zip(sides, rows, strict=True)
    )
    return list(zip(charts, classes, strict=True))


def _rows(chart: Chart) -> int:
    """Return how many grid rows its card needs on a wide page. Too few do no harm: a card grows."""
    lines = sum(-(-len(text) // CHARACTERS) for text in (chart.takeaway, chart.note))
    return (FRAME + (chart.height or WIDE.height) + LINE * lines) // ROW
