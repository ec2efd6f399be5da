"""Throughput and memory against the micro-batch: one line per arm, a cross where memory ran out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from autotune.prediction import Expectation
from autotune.report import drawing
from autotune.report.curves import Curve, curves, fitted
from autotune.report.drawing import Labels, Plane, Size
from autotune.report.figure import Absence, Figure, Table
from autotune.report.phrases import half_width, short
from autotune.summary import ConfigSummary
from autotune.tuning.view import StudyView, summaries
from autotune.units import format_bytes, format_rate

BATCH = "micro-batch, samples (log scale)"
CROSS = 13.0  # pixels that two crosses need to be told apart
FAR = 8  # a limit that many times above every peak would flatten the curves
READING = "Each line takes, at each micro-batch, the {} of all settings that it does not name. ✕: memory ran out."
EXPECTED = " Thin: what the search expects of the fastest setting, after its last probe."
CROSS_SHARE = 0.07  # of the plane's height that a cross takes


def throughput(view: StudyView) -> Figure | Absence:
    """Samples/s against the micro-batch, with intervals; the recommendation in a ring, the baseline in a square."""
    drawn = curves(view)
    if not any(curve.fastest for curve in drawn):
        return Absence(name="throughput", title="Throughput", reason="no probe was measured")
    learned = [fitted(view, curve) for curve in drawn]
    highest = max(one.bounds[1] for curve in drawn for one in curve.fastest)
    highest = max([highest, *(point.expected.samples_per_second for points in learned for point in points)])

    def draw(size: Size) -> list[str]:
        up = drawing.linear(highest * 1.04, "samples/s")
        plane = _plane(size, drawn, up)
        places = [
            [(plane.x(one.config.batch_size), plane.y(one.samples_per_second)) for one in c.fastest] for c in drawn
        ]
        crosses = _crosses(plane, drawn, [spots[-1][1] if spots else plane.bottom for spots in places])
        parts = plane.axes()
        for arm in reversed(range(len(drawn))):  # the fastest lies on top
            lines = _expected(plane, learned[arm], [point.expected.samples_per_second for point in learned[arm]])
            lines += [_interval(plane, one) for one in drawn[arm].fastest]
            parts += _arm(arm, drawn[arm], drawn[arm].fastest, places[arm], crosses.get(arm), lines)
        labels = _labels(plane, places, crosses)
        parts += _marked(plane, view, labels)
        return parts + _names(plane, drawn, places, crosses)

    rows = [
        (
            curve.label, f"{one.config.batch_size:,}", short(one.config.values),
            format_rate(one.samples_per_second), half_width(one.relative_half_width),
            "" if one.feasible else "not usable",
        )
        for curve in drawn
        for one in curve.fastest
    ]  # fmt: skip
    rows += [(c.label, f"{c.exhausted_batch:,}", "", "–", "–", "out of memory") for c in drawn if c.exhausted_batch]
    titles = ("line", "micro-batch", "fastest configuration", "samples/s", "±", "remark")
    return Figure(
        name="throughput",
        title="Throughput",
        summary=f"Throughput in samples/s against micro-batch. {'; '.join(_extent(curve) for curve in drawn)}.",
        table=Table(titles=titles, rows=tuple(rows)),
        draw=draw,
        note=f"{READING.format('fastest')} Bars are 95% intervals; ring: recommended, square: baseline."
        + (EXPECTED if any(learned) else ""),
    )


def memory(view: StudyView) -> Figure | Absence:
    """Peak memory against the micro-batch, with the limit and what is kept free below it."""
    drawn = curves(view)
    if not any(curve.heaviest for curve in drawn):
        return Absence(name="memory", title="Memory", reason="no probe was measured")
    limit, usable = view.request.memory_limit_bytes, view.request.memory_limit_bytes - view.request.headroom_bytes
    learned = [[point for point in fitted(view, curve) if point.expected.memory_bytes] for curve in drawn]
    highest = max(one.peak_bytes for curve in drawn for one in curve.heaviest)
    highest = max([highest, *(point.expected.memory_bytes or 0 for points in learned for point in points)])
    is_near = limit < FAR * highest or any(curve.exhausted_batch for curve in drawn)
    top = max(highest, limit) if is_near else highest
    together = Counter(curve.exhausted_batch for curve in drawn if curve.exhausted_batch)
    room = 1.08 + CROSS_SHARE * (max(together.values(), default=1) - 1)
    unit, name = (2**30, "GiB") if top >= 2**30 else (2**20, "MiB")
    words = (f"limit {format_bytes(limit)}", f"usable {format_bytes(usable)}")

    def draw(size: Size) -> list[str]:
        plane = _plane(size, drawn, drawing.linear(top * room / unit, f"peak memory, {name}"))
        places = [
            [(plane.x(one.config.batch_size), plane.y(one.peak_bytes / unit)) for one in c.heaviest] for c in drawn
        ]
        crosses = _crosses(plane, drawn, [plane.y(limit * 1.03 / unit)] * len(drawn), upwards=True)
        labels = _labels(plane, places, crosses)
        parts = plane.axes()
        if is_near:
            parts += _limits(plane, plane.y(limit / unit), plane.y(usable / unit), words, labels)
        for arm in reversed(range(len(drawn))):
            lines = _expected(plane, learned[arm], [(it.expected.memory_bytes or 0) / unit for it in learned[arm]])
            parts += _arm(arm, drawn[arm], drawn[arm].heaviest, places[arm], crosses.get(arm), lines)
        return parts + _names(plane, drawn, places, crosses)

    rows = [
        (curve.label, f"{one.config.batch_size:,}", short(one.config.values), format_bytes(one.peak_bytes))
        for curve in drawn
        for one in curve.heaviest
    ]
    rows += [(c.label, f"{c.exhausted_batch:,}", "", "out of memory") for c in drawn if c.exhausted_batch]
    far = (
        ""
        if is_near
        else f" The limit ({format_bytes(limit)}) and what may be used of it ({format_bytes(usable)}) lie far above."
    )
    return Figure(
        name="memory",
        title="Memory",
        summary=f"Peak memory against micro-batch, up to {format_bytes(highest)}; {words[0]}, {words[1]}.",
        table=Table(titles=("line", "micro-batch", "heaviest configuration", "peak"), rows=tuple(rows)),
        draw=draw,
        note=READING.format("largest peak") + " Every point was measured." + (EXPECTED if any(learned) else "") + far,
    )


def _expected(plane: Plane, points: Sequence[Expectation], heights: Sequence[float]) -> list[str]:
    """The thin line of what was learned, below what was measured."""
    batches = [int(point.values["batch_size"] or 0) for point in points]
    places = [(plane.x(batch), plane.y(height)) for batch, height in zip(batches, heights, strict=True)]
    return [drawing.polyline(places, "expected")] if len(places) > 1 else []


def _plane(size: Size, drawn: Sequence[Curve], up: drawing.Axis) -> Plane:
    batches = {one.config.batch_size for curve in drawn for one in curve.fastest}
    batches |= {curve.exhausted_batch for curve in drawn if curve.exhausted_batch is not None}
    rows = len(drawing.legend_lines([curve.label for curve in drawn], size)) if size.is_narrow else 0
    return Plane(size=size, across=drawing.logarithmic(sorted(batches), BATCH), up=up, legend=rows)


def _arm(
    arm: int,
    curve: Curve,
    measured: Sequence[ConfigSummary],
    places: Sequence[tuple[float, float]],
    cross: tuple[float, float] | None,
    below: Sequence[str],
) -> list[str]:
    """One curve: what lies below it, its line, its points, and the fall to where memory ran out."""
    parts = [f'<g class="arm{arm}">', *below, drawing.polyline(places, "line")]
    for one, (x, y) in zip(measured, places, strict=True):
        parts.append(drawing.titled(drawing.marker(arm, x, y, is_hollow=not one.feasible), _tip(one)))
    if cross is not None:
        parts.append(drawing.polyline([places[-1] if places else cross, cross], "fall"))
        title = f"{curve.label}: out of memory at {curve.exhausted_batch:,}"
        parts.append(drawing.titled(drawing.cross(*cross), title))
    return [*parts, "</g>"]


def _tip(one: ConfigSummary) -> str:
    spread = half_width(one.relative_half_width)
    rate = f"{format_rate(one.samples_per_second)} samples/s ± {spread}"
    numbers = ", ".join(str(trial.number) for trial in one.measured)
    unusable = "" if one.feasible else ", not usable"
    return f"{short(one.config.values)}: {rate}, {format_bytes(one.peak_bytes)}{unusable} (probe {numbers})"


def _interval(plane: Plane, one: ConfigSummary) -> str:
    if not one.relative_half_width:
        return ""
    x, (low, high) = plane.x(one.config.batch_size), one.bounds
    top, bottom = plane.y(high), plane.y(low)
    return f'<path class="interval" d="M{x:.1f} {bottom:.1f}V{top:.1f}m-3 0h6M{x - 3:.1f} {bottom:.1f}h6"/>'


def _crosses(
    plane: Plane, drawn: Sequence[Curve], heights: Sequence[float], *, upwards: bool = False
) -> dict[int, tuple[float, float]]:
    """Where each arm ran out of memory; of crosses that would cover each other, the fastest arm's stays in place."""
    places: dict[int, tuple[float, float]] = {}
    for arm, curve in enumerate(drawn):
        if curve.exhausted_batch is None:
            continue
        x, y = plane.x(curve.exhausted_batch), heights[arm]
        step = -CROSS if upwards or y > plane.bottom - 4 * CROSS else CROSS
        while any(abs(x - ox) < CROSS and abs(y - oy) < CROSS for ox, oy in places.values()):
            y += step
        places[arm] = (x, y)
    return places


def _labels(
    plane: Plane, places: Sequence[Sequence[tuple[float, float]]], crosses: dict[int, tuple[float, float]]
) -> Labels:
    labels = Labels(plane)
    for spots in places:
        labels.reserve_line(spots)
    for x, y in (*(place for spots in places for place in spots), *crosses.values()):
        labels.reserve(x, y)
    return labels


def _marked(plane: Plane, view: StudyView, labels: Labels) -> list[str]:
    """The recommendation in a ring and the baseline in a square, both named."""
    best = view.recommendation
    parts = []
    if best is not None and isinstance(batch := best.params.get("batch_size"), int):
        x, y = plane.x(batch), plane.y(best.samples_per_second)
        rate = format_rate(best.samples_per_second)
        parts.append(drawing.titled(drawing.ring(x, y), f"recommended: {rate} samples/s"))
        parts.append(labels.put("recommended", x, y, "good"))
    for one in summaries(view):
        if one.config == view.request.baseline:
            x, y = plane.x(one.config.batch_size), plane.y(one.samples_per_second)
            parts += [drawing.square(x, y), labels.put("baseline", x, y, "note")]
    return parts


def _limits(plane: Plane, limit: float, usable: float, words: tuple[str, str], labels: Labels) -> list[str]:
    left, right = plane.size.left, plane.right
    parts = [
        drawing.bar("beyond", left, plane.top, right - left, limit - plane.top),
        f'<path class="limit" d="M{left} {limit:.1f}H{right}"/>',
        f'<path class="usable" d="M{left} {usable:.1f}H{right}"/>',
    ]
    # The limit's name above its line where there is room, the other one's always below.
    above = limit - 6 if limit - plane.top > drawing.LINE else limit + 14
    parts.append(drawing.text(left + 6, above, words[0], "danger"))
    below = max(usable + 14, above + drawing.LINE)
    parts.append(drawing.text(left + 6, below, words[1], "danger"))
    return parts


def _names(
    plane: Plane,
    drawn: Sequence[Curve],
    places: Sequence[Sequence[tuple[float, float]]],
    crosses: dict[int, tuple[float, float]],
) -> list[str]:
    """The curves' names: in a legend if narrow, else at the right, moved apart where they would overlap."""
    if plane.size.is_narrow:
        return drawing.legend([curve.label for curve in drawn], plane.size)
    ends = []
    for arm, spots in enumerate(places):
        ends.append((crosses.get(arm) or (spots[-1] if spots else (plane.size.left, plane.bottom)), arm))
    parts, free, x = [], -math.inf, plane.right + 18
    lift = max(0.0, _lowest([y for (_, y), _ in ends], plane.top) - plane.bottom)
    for (end_x, end_y), arm in sorted(ends, key=lambda entry: entry[0][1]):
        y = free = max(end_y - lift, free + drawing.LINE, plane.top)
        lead = f'<path class="lead" d="M{end_x + 9:.1f} {end_y:.1f}L{x - 8} {y:.1f}"/>'
        name = drawing.text(x + 9, y + 4, drawn[arm].label, "name")
        parts.append(f'<g class="arm{arm}">{lead}{drawing.marker(arm, x, y)}{name}</g>')
    return parts


def _lowest(heights: Sequence[float], top: float) -> float:
    free = -math.inf
    for y in sorted(heights):
        free = max(y, free + drawing.LINE, top)
    return free


def _extent(curve: Curve) -> str:
    if not curve.fastest:
        return f"{curve.label}: out of memory everywhere"
    best = max(curve.fastest, key=lambda one: one.samples_per_second)
    end = "" if curve.exhausted_batch is None else f", out of memory from {curve.exhausted_batch:,}"
    rate = format_rate(best.samples_per_second)
    return f"{curve.label}: up to {rate} at {best.config.batch_size:,}{end}"
