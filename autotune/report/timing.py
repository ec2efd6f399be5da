"""Where the time went: probes over time by outcome, and measuring against all that surrounds it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from autotune.report import drawing
from autotune.report.drawing import Plane, Size
from autotune.report.figure import Absence, Figure, Table
from autotune.report.phrases import outcome_word, short
from autotune.results import Outcome, Trial
from autotune.tuning.view import StudyView
from autotune.units import format_seconds, format_share

TIMELINE, PHASES = "Probes over time", "Where the time went"
ROW = 40  # pixels of a bar with its name
PAUSE = 60.0  # seconds between probes beyond which the search was not running, but resumed
LANES = {"baseline": "baseline", "reference": "baseline", "search": "search", "confirm": "again", "worth": "steps"}
KINDS = {  # class, share of a lane's height, words: shape and word beside colour
    "chosen": (1.0, "recommended"),
    "ran": (1.0, "measured"),
    "exhausted": (0.62, "out of memory"),
    "failed": (0.3, "failed otherwise"),
}
NAMES = {
    "measure": "measuring",
    "alone": "timing model and loader alone",
    "warm-up": "warming up",
    "start": "starting Python and torch",
    "load": "importing your code",
    "build": "building model and data",
    "worst": "the worst batch",
    "validate": "validation batches",
    "other": "ending processes",
    "between": "between probes",
}


@dataclass(frozen=True, kw_only=True)
class Span:
    """One probe on the clock of the search, in which pauses do not count."""

    trial: Trial
    begin: float  # seconds
    end: float
    is_resumed: bool  # a pause lay before it


def spans(trials: Sequence[Trial]) -> tuple[Span, ...]:
    """All probes that carry a time, in their order."""
    found: list[Span] = []
    last: datetime | None = None
    for trial in trials:
        began = _moment(trial.result.started_at)
        if began is None or trial.result.elapsed_seconds <= 0:
            continue
        before = found[-1].end if found else 0.0
        # Recorded to the second, a probe may seem to begin before its predecessor ended.
        gap = 0.0 if last is None else max(0.0, (began - last).total_seconds() - (found[-1].end - found[-1].begin))
        is_resumed = gap > PAUSE
        begin = before + (0.0 if is_resumed else gap)
        found.append(Span(trial=trial, begin=begin, end=begin + trial.result.elapsed_seconds, is_resumed=is_resumed))
        last = began
    return tuple(found)


def timeline(view: StudyView) -> Figure | Absence:
    """Every probe as a block, in a lane for its purpose; colour and height tell how it ended."""
    shown = spans(view.trials)
    if not shown:
        return Absence(name="timeline", title=TIMELINE, reason="no probe carries a time")
    kinds = [_kind(view, span.trial) for span in shown]
    lanes = [lane for lane in dict.fromkeys(LANES.values()) if lane in {LANES[s.trial.purpose] for s in shown}]
    titles = [_title(view, span) for span in shown]
    unit, name = (60.0, "minutes") if shown[-1].end > 180 else (1.0, "seconds")

    def draw(size: Size) -> list[str]:
        return _blocks(size, shown, kinds, titles, lanes, (unit, name))

    spent = dict.fromkeys(KINDS, 0.0)
    for span, kind in zip(shown, kinds, strict=True):
        spent[kind] += span.trial.result.elapsed_seconds
    count = Counter(kinds)
    rows = tuple((KINDS[kind][1], str(count[kind]), format_seconds(spent[kind])) for kind in KINDS if count[kind])
    return Figure(
        name="timeline",
        title=TIMELINE,
        summary="Probes over time: " + ", ".join(f"{number} {word} in {time}" for word, number, time in rows),
        table=Table(titles=("outcome", "probes", "time"), rows=rows),
        draw=draw,
        height=120 + 58 * len(lanes),
        note="A lane for each purpose: “again” is the run-off"
        + (", “steps” is what was probed after it to tell what each change was worth." if "steps" in lanes else ".")
        + (" Dashed: the search was resumed there; the pause is left out." if any(s.is_resumed for s in shown) else ""),
    )


def phases(view: StudyView) -> Figure | Absence:
    """Seconds in each phase of the probes and between them."""
    shown = spans(view.trials)
    spent = dict.fromkeys(NAMES, 0.0)
    for trial in view.trials:
        for phase, seconds in trial.result.phase_seconds.items():
            spent[phase if phase in NAMES else "other"] += seconds
        spent["other"] += max(0.0, trial.result.elapsed_seconds - sum(trial.result.phase_seconds.values()))
    spent["between"] = sum(max(0.0, after.begin - before.end) for before, after in itertools.pairwise(shown))
    total = sum(spent.values())
    if not total or not spent["measure"] + spent["start"]:
        return Absence(name="phases", title=PHASES, reason="no probe carries the times of its phases")
    bars = [(NAMES[phase], seconds) for phase in NAMES if (seconds := spent[phase]) >= 0.05]
    rows = tuple((name, format_seconds(seconds), format_share(seconds / total)) for name, seconds in bars)

    def draw(size: Size) -> list[str]:
        return _bars(size, bars, total)

    return Figure(
        name="phases",
        title=PHASES,
        summary=f"Of {format_seconds(total)}: " + ", ".join(f"{share} {name}" for name, _, share in rows),
        table=Table(titles=("phase", "time", "share"), rows=rows),
        draw=draw,
        height=len(bars) * ROW,
        note=f"{format_seconds(total)} in all. Every probe is a process of its own, so that its faults stay there.",
    )


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _kind(view: StudyView, trial: Trial) -> str:
    best = view.recommendation
    if trial.result.outcome is Outcome.OK:
        return "chosen" if best is not None and trial.config.values == best.params else "ran"
    return "exhausted" if trial.result.outcome.out_of_memory else "failed"


def _title(view: StudyView, span: Span) -> str:
    word = outcome_word(span.trial, view.verdict(span.trial))
    took = format_seconds(span.end - span.begin)
    return f"probe {span.trial.number}, {short(span.trial.config.values)}: {word}, {took}"


def _blocks(
    size: Size,
    shown: Sequence[Span],
    kinds: Sequence[str],
    titles: Sequence[str],
    lanes: Sequence[str],
    unit: tuple[float, str],
) -> list[str]:
    seconds, name = unit
    frame = Size(width=size.width, height=size.height, right=20, left=66, top=26, bottom=86)
    plane = Plane(size=frame, across=drawing.linear(shown[-1].end / seconds, name), up=drawing.NO_AXIS)
    each = (plane.bottom - plane.top) / len(lanes)
    tall = min(46.0, 0.72 * each)
    middle = {lane: plane.top + (index + 0.5) * each for index, lane in enumerate(lanes)}
    parts = plane.axes()
    parts += [drawing.text(frame.left - 8, middle[lane] + 4, lane, "tick", "end") for lane in lanes]
    for span, kind, title in zip(shown, kinds, titles, strict=True):
        share = KINDS[kind][0]
        left, right = plane.x(span.begin / seconds), plane.x(span.end / seconds)
        base = middle[LANES[span.trial.purpose]] + tall / 2
        high, wide = share * tall, max(0.8, right - left - 0.8)
        parts.append(drawing.titled(drawing.bar(kind, left, base - high, wide, high), title))
        if span.is_resumed:
            parts.append(f'<path class="break" d="M{left:.1f} {plane.top}V{plane.bottom}"/>')
    return parts + _key(frame, [kind for kind in KINDS if kind in kinds])


def _key(size: Size, kinds: Sequence[str]) -> list[str]:
    """Swatches as tall as their blocks, on as many lines as they need."""
    parts, x, y = [], 4.0, size.height - 30.0
    for kind in kinds:
        share, word = KINDS[kind]
        need = drawing.width_of(word) + 34
        if x + need > size.width:
            x, y = 4.0, y + 20
        parts.append(drawing.bar(kind, x, y - 12 * share, 12, 12 * share))
        parts.append(drawing.text(x + 18, y - 1, word, "tick"))
        x += need
    return parts


def _bars(size: Size, bars: Sequence[tuple[str, float]], total: float) -> list[str]:
    """A bar for each phase, its name above and its share beside it."""
    longest, parts = max(seconds for _, seconds in bars), []
    room = size.width - 8 - drawing.width_of("10:00 min · 100%") - 10
    for index, (name, seconds) in enumerate(bars):
        y, wide = 4 + index * ROW, max(1.5, seconds / longest * room)
        kind = "ran" if name == NAMES["measure"] else "start"
        parts.append(drawing.text(4, y + 12, name, "strong" if kind == "ran" else "note"))
        parts.append(drawing.bar(kind, 4, y + 17, wide, 11))
        told = f"{format_seconds(seconds)} · {format_share(seconds / total)}"
        parts.append(drawing.text(wide + 12, y + 26.5, told, "tick"))
    return parts
