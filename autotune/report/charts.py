"""Two charts as SVG text: throughput and memory against the micro-batch. Colours and fonts are the page's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from autotune.report.curves import Curve, Point, curves
from autotune.report.phrases import plain
from autotune.tuning.view import StudyView
from autotune.units import format_bytes, format_rate

WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 66, 118, 26, 52  # pixels kept for axis titles, and at the right for the names of the curves
LABEL_HEIGHT = 15  # pixels that a line of text needs
CROSS_WIDTH = 13.0  # pixels that two crosses need to be told apart
TICK_WIDTH = 40  # pixels that the longest tick label needs
GIBIBYTE = 2**30


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The plane of one chart: data to pixels."""

    batches: tuple[int, ...]
    top: float  # the value at the upper edge; the lower edge is 0
    step: float  # between grid lines

    def x(self, batch: int) -> float:
        """Pixels from the left, by the logarithm of the micro-batch."""
        low, high = math.log2(self.batches[0]), math.log2(self.batches[-1])
        share = 0.5 if high == low else 0.04 + 0.92 * (math.log2(batch) - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the upper edge."""
        return TOP + (1 - min(value, self.top) / self.top) * (HEIGHT - TOP - BOTTOM)


def throughput_chart(view: StudyView) -> str:
    """Samples/s against the micro-batch, one line per arm, a cross where memory ran out; empty without probes."""
    drawn = curves(view)
    frame = _frame(drawn, max((point.samples_per_second for curve in drawn for point in curve.points), default=0.0))
    if frame is None:
        return ""
    parts = [*_axes(frame, "samples/s", lambda value: f"{value:,.10g}")]
    parts += _lines(frame, drawn, lambda curve: curve.points, lambda point: point.samples_per_second)
    parts += _marks(frame, view)
    summary = "; ".join(f"{curve.label}: {_extent(curve)}" for curve in drawn)
    return _svg(f"Throughput in samples/s against micro-batch. {summary}", parts)


def memory_chart(view: StudyView) -> str:
    """Peak memory in GiB against the micro-batch, with the limit and what is kept free below it."""
    drawn = curves(view)
    limit = view.request.memory_limit_bytes / GIBIBYTE
    usable = limit - view.request.headroom_bytes / GIBIBYTE
    highest = max((point.peak_bytes / GIBIBYTE for curve in drawn for point in curve.heaviest), default=0.0)
    # A limit far above every peak would flatten the curves: then its value is told, and the line is left out.
    is_near = limit < 8 * highest or any(curve.exhausted_batch is not None for curve in drawn)
    frame = _frame(drawn, max(highest, limit) if is_near and highest else highest)
    if frame is None:
        return ""
    parts = [*_axes(frame, "peak memory, GiB", lambda value: f"{value:,.10g}")]
    texts = (f"limit {format_bytes(limit * GIBIBYTE)}", f"usable {format_bytes(usable * GIBIBYTE)}")
    if is_near:
        parts += _limits(frame, limit, usable, texts)
    else:
        parts.append(_text(LEFT + 6, TOP + 4, f"{texts[0]}, {texts[1]}: far above this chart", "danger"))
    parts += _lines(frame, drawn, lambda curve: curve.heaviest, lambda point: point.peak_bytes / GIBIBYTE, limit * 1.03)
    return _svg(f"Peak memory in GiB against micro-batch; {texts[0]}, {texts[1]}", parts)


def _frame(drawn: Sequence[Curve], highest: float) -> Frame | None:
    batches = {point.batch for curve in drawn for point in curve.points}
    batches |= {curve.exhausted_batch for curve in drawn if curve.exhausted_batch is not None}
    if not batches or highest <= 0:
        return None
    step = _step(highest)
    return Frame(batches=tuple(sorted(batches)), top=step * math.ceil(highest * 1.06 / step), step=step)


def _step(highest: float) -> float:
    """A round distance between four to eight grid lines."""
    rough = highest / 5
    power: float = 10.0 ** math.floor(math.log10(rough))
    return min((power * factor for factor in (1, 2, 5, 10)), key=lambda step: abs(step - rough))


def _axes(frame: Frame, title: str, show: Callable[[float], str]) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for index in range(round(frame.top / frame.step) + 1):
        y = frame.y(index * frame.step)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 8, y + 4, show(index * frame.step), "tick", "end"))
    last = -math.inf
    for batch in frame.batches:
        if frame.x(batch) - last >= TICK_WIDTH:
            last = frame.x(batch)
            parts.append(_text(last, bottom + 18, f"{batch:,}", "tick", "middle"))
    middle = (TOP + bottom) / 2
    parts.append(_text((LEFT + right) / 2, HEIGHT - 10, "micro-batch, samples (log scale)", "axis", "middle"))
    turned = f'transform="translate(16 {middle:.0f}) rotate(-90)"'
    parts.append(f'<text class="axis" text-anchor="middle" {turned}>{escape(title)}</text>')
    return parts


def _lines(
    frame: Frame,
    drawn: Sequence[Curve],
    chosen: Callable[[Curve], Sequence[Point]],
    value: Callable[[Point], float],
    cross_at: float | None = None,
) -> list[str]:
    """Curves with their names at the right; drawn slowest first, so that the fastest lies on top.

    `cross_at` is the value where an out of memory is marked; None: where the curve was last seen.
    """
    parts, ends = [], []
    crosses = _crosses(frame, drawn, [_end(frame, chosen(curve), value) for curve in drawn], cross_at)
    for arm, curve in reversed(list(enumerate(drawn))):
        places = [(frame.x(point.batch), frame.y(value(point))) for point in chosen(curve)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<g class="arm arm{arm}"><polyline class="line" points="{path}"/>')
        for point, (x, y) in zip(chosen(curve), places, strict=True):
            parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{MARKERS[arm]}{_tooltip(curve, point)}</g>')
        end = places[-1] if places else None
        cross = crosses.get(arm)
        if cross is not None:
            start_x, start_y = end or cross
            fall = f'x1="{start_x:.1f}" y1="{start_y:.1f}" x2="{cross[0]:.1f}" y2="{cross[1]:.1f}"'
            parts.append(f'<line class="fall" {fall}/>')
            parts.append(_cross(*cross, f"{curve.label}: out of memory at {curve.exhausted_batch:,}"))
        parts.append("</g>")
        ends.append((cross or end or (LEFT, frame.y(0)), arm, curve.label))
    return parts + _names(ends)


def _names(ends: Sequence[tuple[tuple[float, float], int, str]]) -> list[str]:
    """The curves' names beside their ends, moved apart where they would overlap, with the marker as a key."""
    parts, free = [], -math.inf
    overflow = max(0.0, _lowest(ends) - (HEIGHT - BOTTOM))
    x = WIDTH - RIGHT + 20
    for (end_x, end_y), arm, label in sorted(ends, key=lambda entry: entry[0][1]):
        y = free = max(end_y - overflow, free + LABEL_HEIGHT, TOP)
        lead = f'x1="{end_x + 8:.1f}" y1="{end_y:.1f}" x2="{x - 8}" y2="{y:.1f}"'
        parts.append(f'<g class="arm arm{arm}"><line class="lead" {lead}/>')
        parts.append(
            f'<g transform="translate({x} {y:.1f})">{MARKERS[arm]}</g>{_text(x + 9, y + 4, label, "name")}</g>'
        )
    return parts


def _lowest(ends: Sequence[tuple[tuple[float, float], int, str]]) -> float:
    free = -math.inf
    for (_, y), _, _ in sorted(ends, key=lambda entry: entry[0][1]):
        free = max(y, free + LABEL_HEIGHT, TOP)
    return free


def _marks(frame: Frame, view: StudyView) -> list[str]:
    """The baseline, and the recommended point in a ring."""
    parts = []
    baseline = [trial for trial in view.trials if trial.purpose == "baseline" and trial.result.measurement is not None]
    for trial in baseline[:1]:
        assert trial.result.measurement is not None
        x, y = frame.x(trial.config.batch_size), frame.y(trial.result.measurement.samples_per_second)
        parts.append(f'<rect class="baseline" x="{x - 8:.1f}" y="{y - 8:.1f}" width="16" height="16"/>')
        parts.append(_text(x, y + 24 if y < HEIGHT - BOTTOM - 30 else y - 14, "baseline", "note", "middle"))
    best = view.recommendation
    batch = best.params.get("batch_size") if best is not None else None
    if best is not None and isinstance(batch, int) and batch in frame.batches:
        x, y = frame.x(batch), frame.y(best.samples_per_second)
        rate = format_rate(best.samples_per_second, best.relative_half_width)
        title = f"<title>recommended: {rate} samples/s</title>"
        parts.append(f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="10">{title}</circle>')
        parts.append(_text(x, y - 15, "recommended", "good", "middle"))
    return parts


def _limits(frame: Frame, limit: float, usable: float, texts: tuple[str, str]) -> list[str]:
    right, y, low = WIDTH - RIGHT, frame.y(limit), frame.y(usable)
    return [
        f'<rect class="beyond" x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{max(0.0, y - TOP):.1f}"/>',
        f'<line class="limit" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>',
        f'<line class="usable" x1="{LEFT}" y1="{low:.1f}" x2="{right}" y2="{low:.1f}"/>',
        _text(LEFT + 6, y - 5, texts[0], "danger"),
        _text(LEFT + 6, low + 14, texts[1], "danger"),
    ]


# Shapes around 0,0; colour and dash come from the class of the arm, so that none of the three is the only cue.
MARKERS = (
    '<circle class="dot" r="4"/>',
    '<rect class="dot" x="-4" y="-4" width="8" height="8"/>',
    '<path class="dot" d="M0 -5 L5 4 L-5 4 Z"/>',
    '<path class="dot" d="M0 -5.5 L5.5 0 L0 5.5 L-5.5 0 Z"/>',
    '<path class="dot" d="M0 5 L5 -4 L-5 -4 Z"/>',
    '<path class="dot" d="M-5 -2 H-2 V-5 H2 V-2 H5 V2 H2 V5 H-2 V2 H-5 Z"/>',
)


def _end(frame: Frame, points: Sequence[Point], value: Callable[[Point], float]) -> float:
    return frame.y(value(points[-1]) if points else 0)


def _crosses(
    frame: Frame, drawn: Sequence[Curve], ends: Sequence[float], cross_at: float | None
) -> dict[int, tuple[float, float]]:
    """Where each arm ran out of memory; crosses at the ends of curves are moved apart, the fastest arm's stays."""
    places: dict[int, tuple[float, float]] = {}
    for arm, curve in enumerate(drawn):
        if curve.exhausted_batch is None:
            continue
        x, y = frame.x(curve.exhausted_batch), ends[arm] if cross_at is None else frame.y(cross_at)
        while cross_at is None and any(
            abs(x - ox) < CROSS_WIDTH and abs(y - oy) < CROSS_WIDTH for ox, oy in places.values()
        ):
            y += CROSS_WIDTH if ends[arm] < HEIGHT - BOTTOM - 4 * CROSS_WIDTH else -CROSS_WIDTH
        places[arm] = (x, y)
    return places


def _cross(x: float, y: float, title: str) -> str:
    shape = f"M{x - 5:.1f} {y - 5:.1f} l10 10 m0 -10 l-10 10"
    return f'<path class="cross" d="{shape}"><title>{escape(title)}</title></path>'


def _tooltip(curve: Curve, point: Point) -> str:
    rate = f"{format_rate(point.samples_per_second)} samples/s, {format_bytes(point.peak_bytes)}"
    return f"<title>{escape(curve.label)}, micro-batch {point.batch:,}: {rate} (probe {point.number})</title>"


def _extent(curve: Curve) -> str:
    if not curve.points:
        return "out of memory everywhere"
    best = max(curve.points, key=lambda point: point.samples_per_second)
    end = "" if curve.exhausted_batch is None else f", out of memory from {curve.exhausted_batch:,}"
    return f"up to {format_rate(best.samples_per_second)} at {best.batch:,}{end}"


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(plain(text))}</text>'


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(plain(title))}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}">{"".join(parts)}</svg>'
    )
