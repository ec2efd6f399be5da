"""The chart of ranks that trained together: when each worked and when it waited for others, in one window."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.answer.uneven_ranks import UNEVEN_SHARE, busy_of
from autotune.core.rank_reading import RankReading, imbalance
from autotune.core.results import Measurement
from autotune.report import drawing
from autotune.report.chart import Absence, Chart, Table
from autotune.report.drawing import CHARACTER, Size
from autotune.study.view import StudyView
from autotune.units import counted, format_bytes, format_seconds, format_share

NAME, TITLE = "ranks", "The ranks over time"
ROW, KEY, FOOT = 26, 24, 24  # pixels: a rank, the key above, the time below
COLUMNS = 60  # at most: neighbouring blocks of steps are merged until they fit
MOST_RANKS = 16  # drawn; the table has all
FAINT = 0.12  # opacity for a rank that only waited


def ranks(view: StudyView) -> Chart | Absence:
    """Draw a row for each rank in the last probe of the answer; it is darker where the rank worked more."""
    if view.request.facts.ranks == 1:
        return Absence(name=NAME, title=TITLE, reason="one process trains", is_told=False)
    measured = _last(view)
    if measured is None:
        why = (
            "on a GPU it is not known when a rank waits for others"
            if view.request.environment.device != "cpu"
            else ("no measured probe shows when a rank works")
        )
        return Absence(name=NAME, title=TITLE, reason=why)
    found, works = measured.ranks, busy_of([measured.ranks])
    window = sum(found[0].step_seconds)
    uneven = imbalance(works)
    most = works.index(max(works))
    takeaway = (
        f"rank {most} works {format_share(uneven)} longer than all do on average, and the others wait for it"
        if uneven > UNEVEN_SHARE
        else f"the {len(found)} ranks work alike: the busiest {format_share(uneven)} longer than all do on average"
    )
    waits = (format_share(sum(one.loader_wait_seconds) / sum(one.step_seconds)) for one in found)
    rows = tuple(
        (f"rank {number}", format_share(work), wait, format_bytes(one.memory_bytes))
        for number, (one, work, wait) in enumerate(zip(found, works, waits, strict=True))
    )
    return Chart(
        name=NAME,
        title=f"{TITLE} of one window, {format_seconds(window)}",
        takeaway=takeaway,
        summary=f"{takeaway}. " + "; ".join(f"{name}: working {work} of the time" for name, work, *_ in rows),
        table=Table(titles=("", "working", "waiting for data", "peak memory"), rows=rows),
        draw=lambda size: _rows(found, works, size),
        note="Dark: its main thread works. Light: it waits, for the other ranks or for data.",
        height=KEY + min(len(found), MOST_RANKS) * ROW + FOOT,
    )


def _last(view: StudyView) -> Measurement | None:
    """Return the last measurement with readings of ranks, of the recommended configuration or else of any."""
    best = view.recommendation
    usable = [
        (trial.config.values == (best.params if best else None), trial.number, measured)
        for trial in view.trials
        if (measured := trial.result.measurement) and measured.ranks and all(one.busy_seconds for one in measured.ranks)
    ]
    return max(usable, key=lambda one: one[:2])[2] if usable else None


def _rows(found: Sequence[RankReading], works: Sequence[float], size: Size) -> list[str]:
    parts = [drawing.bar("computing", 4, 4, 11, 11), drawing.text(21, 14, "working", "tick")]
    left, right = 4 + 9 * CHARACTER, size.width - 4 - 6 * CHARACTER
    shown = sorted(sorted(range(len(found)), key=lambda one: -works[one])[:MOST_RANKS])  # the busiest of many
    for row, number in enumerate(shown):
        one, y, x = found[number], KEY + row * ROW, left
        total = sum(one.step_seconds)
        parts.append(drawing.text(4, y + 16, f"rank {number}", "strong"))
        for seconds, busy in _binned(one):
            width = seconds / total * (right - left)
            shade = FAINT + (1 - FAINT) * min(1.0, busy / seconds)
            tip = f"rank {number}: working {format_share(busy / seconds)} of {format_seconds(seconds)}"
            cell = drawing.bar("computing", x, y + 2, width, ROW - 6)
            parts.append(f'<g opacity="{shade:.2f}">{drawing.with_tooltip(cell, tip)}</g>')
            x += width
        parts.append(drawing.text(right + 6, y + 16, format_share(works[number]), "tick"))
    below = KEY + len(shown) * ROW + 14
    said = f"{format_seconds(sum(found[0].step_seconds))}, {counted(len(found[0].step_seconds), 'block')} of steps"
    left_out = f"; the busiest {MOST_RANKS} of {len(found)} ranks" if len(found) > MOST_RANKS else ""
    return [*parts, drawing.text(left, below, said + left_out, "tick")]


def _binned(one: RankReading) -> list[tuple[float, float]]:
    """Return seconds, and seconds of work, of merged neighbouring blocks."""
    count = -(-len(one.step_seconds) // COLUMNS)
    return [
        (sum(one.step_seconds[at : at + count]), sum(one.busy_seconds[at : at + count]))
        for at in range(0, len(one.step_seconds), count)
    ]
