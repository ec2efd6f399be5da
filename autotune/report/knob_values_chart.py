"""The gain of each setting as a chart and a table, as in `autotune explain`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.harmless import shell_word
from autotune.objectives import objective_of
from autotune.report import drawing
from autotune.report.changes import label_of
from autotune.report.chart import Absence, Chart, Table
from autotune.report.drawing import WIDE, Size
from autotune.report.explain import ValueWorth, explain
from autotune.report.explain_text import sentences_of, worth_phrase
from autotune.report.gain import NOT_MEASURED, Gain, basis_phrase, gain_phrase
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView

NAME, TITLE = "settings", "What each setting is worth"
TOP, ROW = 22, 44  # pixels: of the line's name, and of a setting with its name
LONGEST_INTERVAL = 10.0  # no interval is drawn further than so many times its factor


def knob_values_chart(view: StudyView) -> Chart | Absence:
    """Draw one row for each setting with a known factor: in the recommendation, else alone, else as estimated."""
    best = view.recommendation
    if best is None:
        return Absence(name=NAME, title=TITLE, reason="there is no recommendation")
    found = explain(view, best).worths
    rows = [(one, gain) for one in _first_of_each(found) if (gain := one.inside or one.alone or one.estimate)]
    if not rows:
        return Absence(name=NAME, title=TITLE, reason="no setting was measured by itself")

    def draw(size: Size) -> list[str]:
        return _drawn(rows, best, size)

    return Chart(
        name=NAME,
        title=TITLE,
        summary="; ".join(f"{worth_phrase(one)}: {_words(one, gain, best)}" for one, gain in rows),
        table=Table(
            titles=("setting", "in the recommendation", "alone, on the baseline", "measured by"),
            rows=tuple(_cells(one, best) for one in found),
        ),
        draw=draw,
        height=TOP + len(rows) * ROW,
        note=_note(found, view, best),
    )


def _first_of_each(found: Sequence[ValueWorth]) -> list[ValueWorth]:
    """Return all changes, and for each kept setting the best known alternative: the table has the others."""
    return list({tuple(one.values): one for one in reversed(found)}.values())[::-1]


def _cells(one: ValueWorth, best: Recommendation) -> tuple[str, ...]:
    alone = gain_phrase(one.alone, best.goal) if one.alone and one.alone != one.inside else ""
    gain = one.inside or one.alone or one.estimate
    first = sentences_of(one, best)[0] if one.inside or not one.alone else NOT_MEASURED
    return worth_phrase(one), first.partition(", by ")[0], alone, basis_phrase(gain) if gain else ""


def _words(one: ValueWorth, gain: Gain, best: Recommendation, *, has_interval: bool = True) -> str:
    words = gain_phrase(gain, best.goal, has_interval=has_interval).removeprefix(f"{NOT_MEASURED}; ")
    return words if one.inside or gain.by == "estimate" else f"alone {words}"


def _note(found: Sequence[ValueWorth], view: StudyView, best: Recommendation) -> str:
    objective = objective_of(best.goal)
    labels = {label_of(one.values): one for one in reversed(found)}
    same = [name for name, one in reversed(labels.items()) if one.is_same]
    unknown = [name for name, one in reversed(labels.items()) if one.is_open and not (one.alone or one.estimate)]
    parts = [
        f"Factors of one setting, with their 95% intervals; right of the line is {objective.better}. A change (→): "
        f"with it over without it; else another value over the one that stays. Hollow: single probes; dashed: an "
        f"estimate.",
        f"Both train in the same way: {', '.join(same)}." if same else "",
        f"Not measured: {', '.join(unknown)}." if unknown else "",
    ]
    if any(one.is_open for one in found):
        parts.append(f"`autotune explain {shell_word(view.folder.as_posix())} --measure` measures what is open.")
    return " ".join(filter(None, parts))


def _drawn(rows: Sequence[tuple[ValueWorth, Gain]], best: Recommendation, size: Size) -> list[str]:
    """Draw intervals below each other on a logarithmic scale, each with its setting above and its factor beside."""
    told = [_words(one, gain, best, has_interval=size.width >= WIDE.width) for one, gain in rows]
    room = size.width - 28 - 1.1 * max(map(drawing.width_of, told))
    ends = [_ends(gain) for _, gain in rows]
    low, high = min(1.0, *(one for one, _ in ends)), max(1.0, *(one for _, one in ends))

    def x(ratio: float) -> float:
        return 12 + (math.log(ratio / low) / (math.log(high / low) or 1.0)) * room

    parts = [drawing.text(max(x(1.0), 8), 11, "1×", "tick", "middle")]
    for index, ((one, gain), words, (left, right)) in enumerate(zip(rows, told, ends, strict=True)):
        y = TOP + index * ROW
        parts.append(drawing.text(4, y + 11, _fitting(one, size), "strong" if one.is_change else "setting"))
        parts.append(f'<path class="baseline" d="M{x(1.0):.1f} {y + 17}V{y + 35}"/>')
        kind = "whisker dashed" if gain.by == "estimate" else "whisker"
        line = f'<path class="{kind}" d="M{x(left):.1f} {y + 26}H{x(right):.1f}"/>'
        dot = drawing.marker(0, x(gain.ratio), y + 26, is_hollow=gain.by != "rounds")
        told_at = f"{worth_phrase(one)}: {_words(one, gain, best)}"
        parts.append(
            f'<g class="{"kept" if one.is_change else "other"}">{drawing.with_tooltip(line + dot, told_at)}</g>'
        )
        parts.append(drawing.text(room + 26, y + 30, words, "tick"))
    return parts


def _ends(gain: Gain) -> tuple[float, float]:
    low = max(gain.low or gain.ratio, gain.ratio / LONGEST_INTERVAL) if gain.low is not None else gain.ratio
    return low, min(gain.high or gain.ratio, gain.ratio * LONGEST_INTERVAL)


def _fitting(one: ValueWorth, size: Size) -> str:
    words = worth_phrase(one)
    return words if 1.1 * drawing.width_of(words) + 8 < size.width else label_of(one.values)
