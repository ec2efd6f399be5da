"""What speed costs: throughput against memory, for people who share a device."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.records import Config
from autotune.report import drawing
from autotune.report.drawing import Labels, Plane, Size
from autotune.report.figure import Absence, Figure, Table
from autotune.report.phrases import short
from autotune.report.steps import rate
from autotune.summary import ConfigSummary
from autotune.tuning.view import StudyView, summaries
from autotune.units import format_bytes

PARETO = "Throughput against memory"


def pareto(view: StudyView) -> Figure | Absence:
    """Every usable configuration by memory and speed; the line joins those that nothing beats in both."""
    usable = [one for one in summaries(view) if one.feasible]
    if len(usable) < 2:
        return Absence(name="pareto", title=PARETO, reason="fewer than two configurations could be used")
    front = pareto_front(usable)
    peaks = [one.peak_bytes for one in usable]
    unit, name = (2**30, "GiB") if max(peaks) >= 2**30 else (2**20, "MiB")
    least, most = min(peaks) / unit, max(peaks) / unit
    low = least - 0.08 * (most - least) if least > most / 2 else 0.0  # peaks of one size: zero would push them together

    def draw(size: Size) -> list[str]:
        wide = Size(width=size.width, height=size.height, right=20, left=size.left, is_narrow=size.is_narrow)
        plane = Plane(
            size=wide,
            across=drawing.linear(most * 1.02, f"peak memory, {name}", low=low),
            up=drawing.linear(max(one.samples_per_second for one in usable) * 1.1, "samples/s"),
        )
        spots = {one.config: (plane.x(one.peak_bytes / unit), plane.y(one.samples_per_second)) for one in usable}
        cloud = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in spots.values())
        parts = [*plane.axes(), f'<path class="cloud" d="{cloud}"/>', '<g class="arm0">']
        parts.append(drawing.polyline([spots[one.config] for one in front], "line"))
        parts += [drawing.titled(drawing.marker(0, *spots[one.config]), _point(one)) for one in front]
        return [*parts, "</g>", *_named(view, plane, usable, spots, front)]

    rows = tuple((short(one.config.values), rate(one), format_bytes(one.peak_bytes)) for one in front)
    return Figure(
        name="pareto",
        title=PARETO,
        summary=f"{len(usable)} usable configurations; no other beats {len(front)} of them in both speed and memory.",
        table=Table(titles=("configuration", "samples/s", "peak"), rows=rows),
        draw=draw,
        note="For a device that is shared: the line joins what no other configuration beats in both. Dots: all others.",
    )


def pareto_front(usable: Sequence[ConfigSummary]) -> list[ConfigSummary]:
    """Those that no other one beats in both throughput and memory, by memory."""
    front: list[ConfigSummary] = []
    for one in sorted(usable, key=lambda it: (it.peak_bytes, -it.samples_per_second)):
        if not front or one.samples_per_second > front[-1].samples_per_second:
            front.append(one)
    return front


def _named(
    view: StudyView,
    plane: Plane,
    usable: Sequence[ConfigSummary],
    spots: dict[Config, tuple[float, float]],
    front: Sequence[ConfigSummary],
) -> list[str]:
    labels, parts = Labels(plane), []
    labels.reserve_line([spots[one.config] for one in front])
    for one in front:
        labels.reserve(*spots[one.config])
    best = view.recommendation
    for one in usable:
        x, y = spots[one.config]
        if best is not None and one.config.values == best.params:
            parts += [
                f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="9"/>',
                labels.put("recommended", x, y, "good"),
            ]
        elif one.config == view.request.baseline:
            parts += [
                drawing.square(x, y),
                labels.put("baseline", x, y, "note"),
            ]
    return parts


def _point(one: ConfigSummary) -> str:
    return f"{short(one.config.values)}: {rate(one)} samples/s, {format_bytes(one.peak_bytes)}"
