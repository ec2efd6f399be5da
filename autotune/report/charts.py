"""Throughput and memory against the micro-batch: one line per arm, a cross where memory ran out."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.report import drawing
from autotune.report.curves import Curve, curves, fitted
from autotune.report.drawing import Plane, Size
from autotune.report.figure import Absence, Figure, Table
from autotune.report.phrases import half_width, samples_per_second, short
from autotune.sampler.prediction import Expectation
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries
from autotune.units import format_bytes, format_rate

BATCH = "micro-batch, samples (log scale)"
FAR = 8  # a limit that many times above every peak would flatten the curves
READING = "Each line takes, at each micro-batch, the {} of all settings that it does not name. ✕: memory ran out."
EXPECTED = " Thin: what the search expects of the fastest setting, after its last probe."


def throughput(view: StudyView) -> Figure | Absence:
    """Samples/s against the micro-batch, with intervals; the recommendation in a ring, the baseline in a square."""
    drawn = curves(view)
    if not any(curve.fastest for curve in drawn):
        return Absence(name="throughput", title="Throughput", reason="no probe was measured")
    learned = [fitted(view, curve) for curve in drawn]
    highest = max(one.bounds[1] for curve in drawn for one in curve.fastest)
    highest = max([highest, *(point.expected.samples_per_second for points in learned for point in points)])

    def draw(size: Size) -> list[str]:
        plane = _plane(size, drawn, drawing.linear(highest * 1.04, "samples/s"))
        parts = plane.axes()
        for arm in reversed(range(len(drawn))):  # the fastest lies on top
            points = [(one, one.samples_per_second) for one in drawn[arm].fastest]
            below = [_expected(plane, [(it, it.expected.samples_per_second) for it in learned[arm]])]
            below += [_interval(plane, one) for one in drawn[arm].fastest]
            parts += _arm(plane, arm, drawn[arm], points, points[-1][1] if points else 0.0, below)
        return parts + _marked(plane, view)

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
        note=f"{READING.format('fastest')} Bars are 95% intervals." + (EXPECTED if any(learned) else ""),
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
    unit, name = (2**30, "GiB") if top >= 2**30 else (2**20, "MiB")
    words = (f"limit {format_bytes(limit)}", f"usable {format_bytes(usable)}")

    def draw(size: Size) -> list[str]:
        plane = _plane(size, drawn, drawing.linear(top * 1.08 / unit, f"peak memory, {name}"))
        parts = plane.axes()
        if is_near:
            parts += _limits(plane, plane.y(limit / unit), plane.y(usable / unit), words)
        for arm in reversed(range(len(drawn))):
            points = [(one, one.peak_bytes / unit) for one in drawn[arm].heaviest]
            below = [_expected(plane, [(it, (it.expected.memory_bytes or 0) / unit) for it in learned[arm]])]
            parts += _arm(plane, arm, drawn[arm], points, limit * 1.03 / unit, below)
        return parts

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


def _plane(size: Size, drawn: Sequence[Curve], up: drawing.Axis) -> Plane:
    batches = {one.config.batch_size for curve in drawn for one in curve.fastest}
    batches |= {curve.exhausted_batch for curve in drawn if curve.exhausted_batch is not None}
    names = [curve.label for curve in drawn]
    return Plane(size=size, across=drawing.logarithmic(sorted(batches), BATCH), up=up, names=names)


def _expected(plane: Plane, points: Sequence[tuple[Expectation, float]]) -> str:
    """The thin line of what was learned, below what was measured."""
    places = [(plane.x(int(point.values["batch_size"] or 0)), plane.y(value)) for point, value in points]
    return drawing.polyline(places, "expected") if len(places) > 1 else ""


def _arm(
    plane: Plane,
    arm: int,
    curve: Curve,
    points: Sequence[tuple[ConfigSummary, float]],
    end: float,
    below: Sequence[str],
) -> list[str]:
    """One curve: what lies below it, its line, its points, and the fall to `end` where memory ran out."""
    places = [(plane.x(one.config.batch_size), plane.y(value)) for one, value in points]
    parts = [f'<g class="arm{arm}">', *below, drawing.polyline(places, "line")]
    for (one, _), (x, y) in zip(points, places, strict=True):
        parts.append(drawing.titled(drawing.marker(arm, x, y, is_hollow=not one.feasible), _tip(one)))
    if curve.exhausted_batch is not None:
        place = (plane.x(curve.exhausted_batch), plane.y(end))
        parts.append(drawing.polyline([*places[-1:], place], "fall"))
        title = f"{curve.label}: out of memory at {curve.exhausted_batch:,}"
        parts.append(drawing.titled(drawing.cross(*place), title))
    return [*parts, "</g>"]


def _tip(one: ConfigSummary) -> str:
    spread = half_width(one.relative_half_width)
    rate = f"{samples_per_second(one.samples_per_second)} ± {spread}"
    numbers = ", ".join(str(trial.number) for trial in one.measured)
    unusable = "" if one.feasible else ", not usable"
    return f"{short(one.config.values)}: {rate}, {format_bytes(one.peak_bytes)}{unusable} (probe {numbers})"


def _interval(plane: Plane, one: ConfigSummary) -> str:
    if not one.relative_half_width:
        return ""
    x, (low, high) = plane.x(one.config.batch_size), one.bounds
    top, bottom = plane.y(high), plane.y(low)
    return f'<path class="interval" d="M{x:.1f} {bottom:.1f}V{top:.1f}m-3 0h6M{x - 3:.1f} {bottom:.1f}h6"/>'


def _marked(plane: Plane, view: StudyView) -> list[str]:
    """The recommendation in a ring and the baseline in a square, with a key to both above the plane."""
    best = view.recommendation
    baseline = [one for one in summaries(view) if one.config == view.request.baseline]
    parts, key = [], plane.right
    for one in baseline:
        parts.append(drawing.square(plane.x(one.config.batch_size), plane.y(one.samples_per_second)))
        parts += [drawing.text(key, 13, "baseline", "note", "end"), drawing.square(key - 72, 9)]
        key -= 98
    if best is not None and isinstance(batch := best.params.get("batch_size"), int):
        ring = drawing.ring(plane.x(batch), plane.y(best.samples_per_second))
        parts.append(drawing.titled(ring, f"recommended: {samples_per_second(best.samples_per_second)}"))
        parts += [drawing.text(key, 13, "recommended", "good", "end"), drawing.ring(key - 112, 10.5)]
    return parts


def _limits(plane: Plane, limit: float, usable: float, words: tuple[str, str]) -> list[str]:
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


def _extent(curve: Curve) -> str:
    if not curve.fastest:
        return f"{curve.label}: out of memory everywhere"
    best = max(curve.fastest, key=lambda one: one.samples_per_second)
    end = "" if curve.exhausted_batch is None else f", out of memory from {curve.exhausted_batch:,}"
    rate = format_rate(best.samples_per_second)
    return f"{curve.label}: up to {rate} at {best.config.batch_size:,}{end}"
