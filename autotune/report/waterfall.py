"""What each change gained: a waterfall from the baseline to the recommendation, along measured configurations."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.report import drawing
from autotune.report.chart import Absence, Chart, Table
from autotune.report.drawing import Size
from autotune.report.phrases import short
from autotune.report.steps import StepRow, step_rows, verdict
from autotune.study.view import StudyView

TITLE = "What each change gained"
BAR, ROW = 14, 46  # pixels: a bar, and what it needs with its name


def waterfall(view: StudyView) -> Chart | Absence:
    """One bar a step, dashed where several changes were measured together only."""
    way = step_rows(view)
    if not way:
        return Absence(name="ablation", title=TITLE, reason=_why_no_way(view))
    signs = " Dashed: several changes at once." if any(one.step.changes > 1 for one in way) else ""
    signs += (
        " Not significant: less than the uncertainty of the two rates."
        if any(one.gain == "(not significant)" for one in way)
        else ""
    )

    def draw(size: Size) -> list[str]:
        return _waterfall(way, size)

    rows = tuple((one.change, short(one.step.summary.config.values), one.rate, one.gain, one.evidence) for one in way)
    return Chart(
        name="ablation",
        title=TITLE,
        summary="From the baseline to the recommendation in samples/s. "
        + "; ".join(f"{one.change}: {one.rate} {one.gain}".strip() for one in way),
        table=Table(titles=("change", "configuration", "samples/s", "gain", "evidence"), rows=rows),
        draw=draw,
        height=len(way) * ROW,
        note=f"{verdict(view)}{signs} The order of changes matters: each gain is on top of those above it.",
    )


def _why_no_way(view: StudyView) -> str:
    best = view.recommendation
    if best is None:
        return "there is no recommendation"
    if best.params == best.baseline:
        return "the baseline itself is recommended"
    return "the baseline was not measured"


def _waterfall(way: Sequence[StepRow], size: Size) -> list[str]:
    """Bars below each other, every one beginning where the last ended, with its name above and its gain at the end."""
    highest = max(one.step.summary.samples_per_second for one in way)
    room = size.width - 8 - drawing.width_of("10,000 (not significant)") - 12
    parts, last = [], 0.0
    for index, one in enumerate(way):
        rate, y = one.step.summary.samples_per_second, 4 + index * ROW
        start, end = sorted((last, rate))
        x, wide = 4 + start / highest * room, max(2.0, (end - start) / highest * room)
        kind = "start" if index == 0 else "up" if rate >= last else "down"
        kind += " joint" if one.step.changes > 1 else ""
        bar = drawing.bar(kind, x, y + 19, wide, BAR)
        parts.append(drawing.text(4, y + 13, _fitting(one, size.width), "note" if index == 0 else "strong"))
        parts.append(drawing.titled(bar, f"{short(one.step.summary.config.values)}: {one.rate} samples/s"))
        words = f"{one.rate} {one.gain}" if index else f"{one.rate} samples/s"
        parts.append(drawing.text(x + wide + 8, y + 19 + BAR - 2.5, words, "tick"))
        if index + 1 < len(way):
            edge = 4 + rate / highest * room
            parts.append(f'<path class="grid" d="M{edge:.1f} {y + 19 + BAR:.1f}V{y + ROW + 19:.1f}"/>')
        last = rate
    return parts


def _fitting(one: StepRow, width: int) -> str:
    """The change in as many words as there is room for: with its values, by name, or as a number of changes."""
    for words in (one.change, one.labels):
        if words and 1.1 * drawing.width_of(words) + 8 < width:
            return words
    return f"{one.step.changes} changes at once" if one.step.changed else "baseline"
