"""The chart of the search over time: every probe, the best so far, and the confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.results import Trial
from autotune.report import drawing, phrases
from autotune.report.chart import Absence, Chart, Table
from autotune.report.drawing import Plane, Size
from autotune.study.shown import shown_config
from autotune.study.view import AGAIN, StudyView
from autotune.units import counted, format_rate, format_seconds

NAME, TITLE = "history", "The search over time"
FEWEST_DRAWN_PROBES = 2  # probes: one is no history
MINUTE = 60.0


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One probe, at the time of its end in seconds of probing: breaks between runs of a search do not count."""

    trial: Trial
    name: str  # of its configuration
    seconds: float
    rate: float | None  # samples/s; None: not measured
    is_usable: bool


def history(view: StudyView) -> Chart | Absence:
    """Draw samples/s of every probe against the time, with the best usable one of the search as a step line."""
    moments = _moments(view)
    measured = [one.rate for one in moments if one.rate is not None]
    if len(moments) < FEWEST_DRAWN_PROBES or not measured:
        return Absence(name=NAME, title=TITLE, reason="there are too few probes")
    end = moments[-1].seconds
    unit, name = (MINUTE, "min") if end >= 2 * MINUTE else (1.0, "s")
    across, up = (
        drawing.linear(end / unit, f"time of probing, {name}"),
        drawing.linear(1.04 * max(measured), "samples/s"),
    )
    best = _best_so_far(moments)

    def draw(size: Size) -> list[str]:
        return _drawn(Plane(size=size, across=across, up=up), moments, best, unit)

    failed = sum(not one.is_usable for one in moments)
    said = f"{counted(len(moments), 'probe')}, {format_seconds(end)} of probing"
    said += f", {failed} not usable" if failed else ""
    has_rounds = any(one.trial.purpose in AGAIN for one in moments)
    last = f"; best of the search {phrases.samples_per_second(best[-1][1])}" if best else ""
    lucky = " One probe alone may be lucky: the answer rests on what is shaded, measured again in rounds."
    return Chart(
        name=NAME,
        title=TITLE,
        takeaway=said,
        summary=said + last,
        table=Table(
            titles=("best so far, samples/s", "after"),
            rows=tuple((format_rate(rate), format_seconds(seconds)) for seconds, rate in best) or (("–", "–"),),
        ),
        draw=draw,
        note="Line: the fastest usable probe of the search so far."
        + lucky * has_rounds
        + " ✕: not usable." * bool(failed),
    )


def _moments(view: StudyView) -> list[Moment]:
    moments, seconds = [], 0.0
    for trial in view.trials:
        seconds += trial.result.elapsed_seconds
        measured = trial.result.measurement
        rate = None if measured is None else measured.samples_per_second
        name, is_usable = shown_config(trial.config.values, view.knobs), view.verdict(trial).feasible
        moments.append(Moment(trial=trial, name=name, seconds=seconds, rate=rate, is_usable=is_usable))
    return moments


def _best_so_far(moments: Sequence[Moment]) -> list[tuple[float, float]]:
    """Return the times at which the search found a faster usable configuration, with their rates."""
    found: list[tuple[float, float]] = []
    for one in moments:
        if (
            one.rate is not None
            and one.is_usable
            and one.trial.purpose not in AGAIN
            and (not found or one.rate > found[-1][1])
        ):
            found.append((one.seconds, one.rate))
    return found


def _drawn(plane: Plane, moments: Sequence[Moment], best: Sequence[tuple[float, float]], unit: float) -> list[str]:
    parts, again = plane.axes(), [one for one in moments if one.trial.purpose in AGAIN]
    if again:
        first = again[0].seconds - again[0].trial.result.elapsed_seconds
        left, right = plane.x(first / unit), plane.x(again[-1].seconds / unit)
        parts.append(drawing.bar("rounds", left, plane.top, right - left, plane.bottom - plane.top))
    line: list[tuple[float, float]] = []
    for seconds, rate in best:
        x, y = plane.x(seconds / unit), plane.y(rate)
        line += [(x, line[-1][1]), (x, y)] if line else [(x, y)]
    if line:
        line.append((plane.x(moments[-1].seconds / unit), line[-1][1]))
    parts += ['<g class="series0">', drawing.polyline(line, "line"), "</g>"]
    for one in moments:
        x, y = plane.x(one.seconds / unit), plane.y(one.rate or 0.0)
        is_again = one.trial.purpose in AGAIN
        shape = drawing.marker(0, x, y, is_hollow=not is_again) if one.is_usable else drawing.cross(x, y)
        parts.append(f'<g class="series0">{drawing.with_tooltip(shape, _tip(one))}</g>')
    return parts


def _tip(one: Moment) -> str:
    rate = "" if one.rate is None else f", {phrases.samples_per_second(one.rate)}"
    unusable = "" if one.is_usable else ", not usable"
    purpose = phrases.purpose_word(one.trial.purpose)
    return f"probe {one.trial.number}, {purpose}: {one.name}{rate}{unusable}"
