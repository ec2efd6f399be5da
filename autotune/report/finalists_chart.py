"""The chart of the finalists: every round of each, with medians and intervals. Each round is a process of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.records import Config
from autotune.core.stats import typical_rate
from autotune.harmless import cropped
from autotune.knobs import touched
from autotune.report import drawing, phrases
from autotune.report.chart import Absence, Chart, Table
from autotune.report.drawing import Axis, Size
from autotune.study.recommendation import Confirmation, Recommendation
from autotune.study.shown import shown_config
from autotune.study.view import StudyView
from autotune.units import counted, format_rate, format_speedup

NAME, TITLE = "finalists", "Which one won"
ROW, AXIS = 44, 40  # pixels: a finalist with its name, and the axis below all
MOST_DRAWN_FINALISTS = 8  # finalists; slower ones are in the table
CAPTION = (
    "A circle is a round in a process of its own, the stroke their median (pseudo-median), the bar its 95% interval."
)
SHIFTED = (
    " The machine was not equally fast in all rounds: a median is corrected by how fast the others were, so that "
    "its own circles may lie beside it."
)
FASTER = " Why a faster one was not chosen: above, under “Why this one, and not another”."
LEAST_SHIFT = 0.02  # of a rate from that of its own rounds alone: a smaller shift gets no sentence


@dataclass(frozen=True, kw_only=True)
class Finalist:
    """One configuration that was measured again: its rate, rounds and interval."""

    name: str
    kind: str  # class of its colour
    rate: float  # samples/s, `Rounds.typical_rate`
    factor: float | None  # over the baseline; None: the baseline cannot run
    half_width: float | None  # 95 %, samples/s; None: not known
    rounds: tuple[float, ...]  # samples/s

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest samples/s that are drawn."""
        width = self.half_width or 0.0
        return min(self.rate - width, *self.rounds), max(self.rate + width, *self.rounds)


def finalists(view: StudyView) -> Chart | Absence:
    """Draw every finalist as a line: circles are its processes, the stroke their median, the bar its 95% interval."""
    best = view.recommendation
    known = _known(best) if best else []
    if best is None or len(known) < 2:
        return Absence(name=NAME, title=TITLE, reason="nothing was measured in rounds with the baseline")
    drawn = _drawn(known)
    ends = [end for one in drawn for end in one.ends]
    across = drawing.linear(max(ends), "samples/s", low=max(0.0, min(ends)), lines=4)

    def draw(size: Size) -> list[str]:
        return _rows(drawn, across, size)

    rows = tuple((one.name, format_rate(one.rate), _spread(one), _factor(one), _rounds(one)) for one in known)
    return Chart(
        name=NAME,
        title=TITLE,
        takeaway=phrases.headline(best),
        summary="; ".join(f"{name}: {rate} samples/s {factor}".rstrip() for name, rate, _, factor, _ in rows),
        table=Table(titles=("configuration", "samples/s", "±", "over baseline", "rounds, samples/s"), rows=rows),
        draw=draw,
        height=len(drawn) * ROW + AXIS,
        note=CAPTION
        + SHIFTED * any(_is_shifted(one) for one in drawn)
        + FASTER * (known[0].kind == "other")
        + f" The numbers hold {counted(len(known) - len(drawn), 'slower one')} more." * (len(drawn) < len(known)),
    )


def _drawn(known: Sequence[Finalist]) -> list[Finalist]:
    """Return the finalists to draw: the fastest, always with recommendation and baseline."""
    ends = sum(one.kind != "other" for one in known)
    others = [one for one in known if one.kind == "other"][: MOST_DRAWN_FINALISTS - ends]
    return [one for one in known if one.kind != "other" or one in others]


def _known(best: Recommendation) -> list[Finalist]:
    found = [one for one in best.confirmations if one.rounds]
    knobs = touched([*(one.config for one in found), Config(values=best.baseline)])
    own = next((len(one.rounds) for one in found if one.config.values == best.params), 1)
    rows = []
    for one in found:
        is_best, is_baseline = one.config.values == best.params, one.config.values == best.baseline
        said = " · recommended" * is_best + " · baseline" * is_baseline
        rows.append(
            Finalist(
                name=shown_config(one.config.values, knobs) + said,
                kind="kept" if is_best else "dropped" if is_baseline else "other",
                rate=one.samples_per_second,
                factor=_over(one, best),
                half_width=_half_width(one, best, own),
                rounds=one.rounds,
            )
        )
    return sorted(rows, key=lambda one: one.rate, reverse=True)


def _is_shifted(one: Finalist) -> bool:
    """Return whether the rate differs visibly from that of its own rounds alone (`Rounds.typical_rate`)."""
    return abs(one.rate / typical_rate(one.rounds) - 1) > LEAST_SHIFT


def _over(one: Confirmation, best: Recommendation) -> float | None:
    if one.config.values == best.params:
        return best.speedup
    base = best.baseline_samples_per_second
    return one.samples_per_second / base if base else None


def _half_width(one: Confirmation, best: Recommendation, rounds: int) -> float | None:
    """Return the half width of its interval, samples/s: the pooled spread over the root of its own rounds; or None."""
    if best.relative_half_width is None:
        return None
    return one.samples_per_second * best.relative_half_width * math.sqrt(rounds / len(one.rounds))


def _rows(drawn: Sequence[Finalist], across: Axis, size: Size) -> list[str]:
    left, right, bottom = 8.0, size.width - 8.0, len(drawn) * ROW

    def x(rate: float) -> float:
        return left + (0.06 + 0.88 * min(max(across.share(rate), 0.0), 1.0)) * (right - left)

    parts, last = [], -math.inf
    for value, name in across.ticks:
        parts.append(f'<path class="grid" d="M{x(value):.1f} 20V{bottom}"/>')
        half = 0.6 * drawing.width_of(name)
        if x(value) - half > last + 4:
            last = x(value) + half
            parts.append(drawing.text(x(value), bottom + 16, name, "tick", "middle"))
    parts.append(drawing.text((left + right) / 2, bottom + 34, across.title, "axis", "middle"))
    for index, one in enumerate(drawn):
        y = index * ROW + 29
        factor = _factor(one)
        parts.append(
            drawing.text(left, y - 15, _fitting(one.name, size.width), "strong" if one.kind == "kept" else "tick")
        )
        parts.append(drawing.text(right, y - 15, factor, "strong" if one.kind == "kept" else "tick", "end"))
        low, high = (one.rate - (one.half_width or 0.0), one.rate + (one.half_width or 0.0))
        marks = drawing.bar("spread", x(low), y - 5, x(high) - x(low), 10)
        marks += "".join(f'<circle class="round" cx="{x(rate):.1f}" cy="{y}" r="4.5"/>' for rate in one.rounds)
        marks += drawing.bar("mean", x(one.rate) - 1.5, y - 8, 3, 16)
        tip = (
            f"{one.name}: {phrases.samples_per_second(one.rate)}{_spread(one, ' ± ')}, {factor}; rounds {_rounds(one)}"
        )
        parts.append(f'<g class="{one.kind}">{drawing.with_tooltip(marks, tip)}</g>')
    return parts


def _fitting(name: str, width: int) -> str:
    """Return the name, cut to `width`; the words recommended or baseline stay whole."""
    configuration, dot, mark = name.partition(" · ")
    room = int((width - 70) / drawing.CHARACTER / 1.1)
    return cropped(configuration, room - len(dot + mark)) + dot + mark


def _factor(one: Finalist) -> str:
    return "" if one.factor is None else f"{format_speedup(one.factor)}×"


def _spread(one: Finalist, before: str = "") -> str:
    return "" if one.half_width is None else before + phrases.half_width(one.half_width / one.rate)


def _rounds(one: Finalist) -> str:
    return ", ".join(map(format_rate, one.rounds))
