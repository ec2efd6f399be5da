"""The worth of each change of an answer: how much worse the configuration is without it, in words and as a chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Config, Value
from autotune.harmless import plain
from autotune.knobs import KNOBS, knob
from autotune.knobs.changes import HELD_TOGETHER, changes_between
from autotune.objectives import objective_of
from autotune.report import drawing
from autotune.report.chart import Absence, Chart, Table
from autotune.report.drawing import Size
from autotune.report.phrases import shown
from autotune.study.recommendation import Change, Recommendation
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries
from autotune.units import format_share

NAME, TITLE = "changes", "What each change is worth"
NOT_SIGNIFICANT = " (not significant)"
UNKNOWN_SPREAD = 0.02  # where a spread is not known: that of one probe on a quiet machine
LEAST_MEMORY = 0.005  # a share of the peak that is worth a word: less is shown as 0%
BAR, ROW = 14, 46  # pixels: a bar, and what it needs with its name


def changes_of(best: Recommendation, view: StudyView | None) -> tuple[Change, ...]:
    """Return the changes from the baseline, with what is known of each; those that were dropped come last.

    Before its ablation, and in studies of versions that had none, an answer has at most single probes without a
    change.
    """
    if best.changes is not None:
        known = (one for one in best.changes if set(one.values) <= {knob.name for knob in KNOBS})
        return tuple(sorted(known, key=lambda one: not one.kept))
    measured = {one.config: one for one in summaries(view) if one.feasible} if view else {}
    groups = changes_between(best.baseline, best.params)
    untested = notice(Code.CHANGE_NOT_YET_MEASURED if view and view.running else Code.CHANGE_NOT_ALONE)
    return tuple(_earlier(best, group, len(groups), measured, untested) for group in groups)


def _earlier(
    best: Recommendation, names: tuple[str, ...], changes: int, measured: dict[Config, ConfigSummary], untested: Notice
) -> Change:
    values, before = ({name: of.get(name) for name in names} for of in (best.params, best.baseline))
    if changes == 1 and best.speedup:  # without it is the baseline, and the race knows it best
        ratio, low, high = (one and 1 / one for one in (best.speedup, best.speedup_high, best.speedup_low))
        return Change(values=values, before=before, kept=True, ratio=ratio, ratio_low=low, ratio_high=high)
    own = measured.get(Config(values=dict(best.params)))
    without = measured.get(Config(values={**best.params, **before}))
    if own is None or without is None or bool(own.compared) != bool(without.compared):  # a lucky probe beside rounds
        return Change(values=values, before=before, kept=True, untested=untested)
    widths = [UNKNOWN_SPREAD if it.relative_half_width is None else it.relative_half_width for it in (own, without)]
    ratio, spread = without.samples_per_second / own.samples_per_second, math.hypot(*widths)
    low, high = ratio * max(0.0, 1 - spread), ratio * (1 + spread)
    return Change(values=values, before=before, kept=True, ratio=ratio, ratio_low=low, ratio_high=high)


def worth(change: Change, best: Recommendation) -> str:
    """Return `without it 35% slower`, or why that was not measured."""
    if change.ratio is None:
        why = plain(change.untested.text.partition("\n")[0].rstrip(".")) if change.untested else ""
        return why if best.changes is None else f"not tested: {why}"
    objective = objective_of(best.goal)
    share = 1 - change.ratio if change.ratio < 1 else change.ratio - 1
    text = f"without it {format_share(share)} {objective.worse if change.ratio < 1 else objective.better}"
    if change.untested:
        return f"{text}, by single probes"
    memory = abs(1 - (change.memory_ratio or 1.0))
    if objective.slack(best.goal) is not None and memory >= LEAST_MEMORY:
        text += f", {format_share(memory)} {'more' if (change.memory_ratio or 1.0) > 1 else 'less'} memory"
    return text if is_significant(change) else text + NOT_SIGNIFICANT


def is_significant(change: Change) -> bool:
    """Whether the interval of what is left without it leaves out 1; without an interval it does not tell."""
    low, high = change.ratio_low, change.ratio_high
    return low is not None and high is not None and not low <= 1 <= high


def change_phrase(change: Change) -> str:
    """Return `precision fp32 → bf16`, `batch 64×16 → 1024×1`."""
    return f"{label(change)} {_brief(change.before)} → {_brief(change.values)}"


def label(change: Change) -> str:
    """Return the name of what changes: `precision`, `batch`."""
    return "batch" if set(change.values) == set(HELD_TOGETHER) else knob(next(iter(change.values))).label


def value_of(values: Mapping[str, Value]) -> str:
    """Return the value of one change as in the dict, `bfloat16`; the batch with its accumulation, `32 × 2`."""
    if set(values) == set(HELD_TOGETHER):
        return " × ".join(plain(str(value)) for value in values.values())
    ((name, value),) = values.items()
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(knob(name), values) if value is None else plain(str(value))


def _brief(values: dict[str, Value]) -> str:
    return "×".join(shown(knob(name), values).removeprefix("×") for name in values)


def worth_lines(best: Recommendation, view: StudyView | None) -> list[str]:
    """Return a line for each change: what it is worth, in which interval, and whether it was dropped."""
    return [
        f"{'' if one.kept else 'dropped: '}{change_phrase(one)}: {worth(one, best)}{_interval(one, best)}"
        for one in changes_of(best, view)
    ]


def _interval(change: Change, best: Recommendation) -> str:
    if change.ratio is None or change.ratio_low is None or change.ratio_high is None:
        return ""
    return f" ({change.ratio_low:.2f} to {change.ratio_high:.2f} of the {objective_of(best.goal).unit}, 95% interval)"


def changes_chart(view: StudyView) -> Chart | Absence:
    """One bar for each change: how much is left of the speed without it."""
    best = view.recommendation
    if best is None:
        return Absence(name=NAME, title=TITLE, reason="there is no recommendation")
    changes = changes_of(best, view)
    if not any(one.ratio for one in changes):
        why = "no change was measured alone" if changes else "the baseline itself is recommended"
        return Absence(name=NAME, title=TITLE, reason=why)

    def draw(size: Size) -> list[str]:
        return _bars(changes, best, size)

    rows = tuple(
        (
            change_phrase(one),
            "recommended" if one.kept else "dropped",
            worth(one, best),
            "" if one.ratio is None else f"{one.ratio:.2f}",
            "" if one.ratio_low is None or one.ratio_high is None else f"{one.ratio_low:.2f} to {one.ratio_high:.2f}",
        )
        for one in changes
    )
    unit = objective_of(best.goal).unit
    return Chart(
        name=NAME,
        title=TITLE,
        summary="; ".join(f"{phrase}: {text}" for phrase, _, text, _, _ in rows),
        table=Table(titles=("change", "answer", "worth", f"share of {unit} without it", "95% interval"), rows=rows),
        draw=draw,
        height=len(changes) * ROW + 4,
        note=f"What is left of the {unit} without this one change, with its 95% interval; the vertical line is the "
        f"configuration with all of them."
        + " Dropped: what gains less than 2%, or nothing beyond the interval."
        * any(not one.kept for one in changes),
    )


def _bars(changes: Sequence[Change], best: Recommendation, size: Size) -> list[str]:
    """Bars below each other, each with its name above and its worth at the end; a line at 1."""
    most = max(1.0, *(one.ratio_high or one.ratio or 0.0 for one in changes))
    told = [worth(one, best).removeprefix("without it ") for one in changes]
    beside = (drawing.width_of(words) for one, words in zip(changes, told, strict=True) if one.ratio is not None)
    longest = max(beside, default=0.0)
    room = min(0.5 * size.width, size.width - 24 - 1.1 * longest)  # the words stand behind the longest bar
    edge = 4 + room / most
    parts = [f'<path class="grid" d="M{edge:.1f} 4V{len(changes) * ROW:.1f}"/>']
    for index, (one, words) in enumerate(zip(changes, told, strict=True)):
        y = 4 + index * ROW
        parts.append(drawing.text(4, y + 13, _fitting(one, size.width), "strong" if one.kept else "note"))
        if one.ratio is None:
            parts.append(drawing.text(4, y + 19 + BAR - 2.5, words, "tick"))
            continue
        wide = max(2.0, one.ratio / most * room)
        bar = drawing.bar("kept" if one.kept else "dropped", 4, y + 19, wide, BAR)
        low, high = (
            4 + min(end, most) / most * room for end in (one.ratio_low or one.ratio, one.ratio_high or one.ratio)
        )
        line = f'<path class="whisker" d="M{low:.1f} {y + 19 + BAR / 2:.1f}H{high:.1f}"/>'
        parts.append(drawing.titled(bar + line, f"{change_phrase(one)}: {worth(one, best)}{_interval(one, best)}"))
        parts.append(drawing.text(max(high, edge) + 8, y + 19 + BAR - 2.5, words, "tick"))
    return parts


def _fitting(change: Change, width: int) -> str:
    words = change_phrase(change) + ("" if change.kept else ": dropped")
    return words if 1.1 * drawing.width_of(words) + 8 < width else label(change)
