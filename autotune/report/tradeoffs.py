"""What speed costs: what each change was worth, and throughput against memory for people who share a device."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.knobs import KNOBS
from autotune.records import Config
from autotune.report import drawing
from autotune.report.drawing import Labels, Plane, Size
from autotune.report.figure import Absence, Figure, Table
from autotune.report.phrases import short, shown
from autotune.tuning.standings import Standing, standings
from autotune.tuning.view import StudyView
from autotune.tuning.worth import HELD_TOGETHER, Step, missing, steps
from autotune.units import format_bytes, format_rate

WORTH = "What each change was worth"
PARETO = "Throughput against memory"
BAR, ROW = 14, 46  # pixels: a bar, and what it needs with its name


def worth(view: StudyView) -> Figure | Absence:
    """A waterfall from the baseline to the recommendation, along configurations that were measured."""
    way = steps(view)
    if len(way) < 2:
        return Absence(name="worth", title=WORTH, reason=_why_no_way(view))
    lacking = len(missing(view))
    apart = [step for step in way[1:] if step.changes == 1]

    def draw(size: Size) -> list[str]:
        return _waterfall(way, size)

    told = "Every step is one change, measured."
    if lacking:
        joint = len(way) - 1 - len(apart)
        probes = "1 more probe" if lacking == 1 else f"{lacking} more probes"
        told = (
            f"{len(apart)} of {len(way) - 1} steps were measured one change at a time. Dashed: {joint} made several "
            f"changes at once; how their gain divides was not measured ({probes} would tell)."
        )
    rows = [
        (
            _change(step, way[0]),
            short(step.standing.config.values),
            _rate(step.standing),
            _gain(way, index),
            _evidence(step),
        )
        for index, step in enumerate(way)
    ]
    return Figure(
        name="worth",
        title=WORTH,
        summary="From the baseline to the recommendation in samples/s. "
        + "; ".join(f"{change}: {rate} {gain}" for change, _, rate, gain, _ in rows),
        table=Table(titles=("change", "configuration", "samples/s", "gain", "evidence"), rows=tuple(rows)),
        draw=draw,
        height=len(way) * ROW,
        note=f"{told} The order of changes matters: each one's worth is what it added to those above it.",
    )


def pareto(view: StudyView) -> Figure | Absence:
    """Every usable configuration by memory and speed; the line joins those that nothing beats in both."""
    usable = [one for one in standings(view) if one.feasible]
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

    rows = tuple((short(one.config.values), _rate(one), format_bytes(one.peak_bytes)) for one in front)
    return Figure(
        name="pareto",
        title=PARETO,
        summary=f"{len(usable)} usable configurations; no other beats {len(front)} of them in both speed and memory.",
        table=Table(titles=("configuration", "samples/s", "peak"), rows=rows),
        draw=draw,
        note="For a device that is shared: the line joins what no other configuration beats in both. Dots: all others.",
    )


def pareto_front(usable: Sequence[Standing]) -> list[Standing]:
    """Those that no other one beats in both throughput and memory, by memory."""
    front: list[Standing] = []
    for one in sorted(usable, key=lambda it: (it.peak_bytes, -it.samples_per_second)):
        if not front or one.samples_per_second > front[-1].samples_per_second:
            front.append(one)
    return front


def _why_no_way(view: StudyView) -> str:
    best = view.recommendation
    if best is None:
        return "there is no recommendation"
    if best.params == best.baseline:
        return "the baseline itself is recommended"
    return "the baseline was not measured"


def _waterfall(way: Sequence[Step], size: Size) -> list[str]:
    """Bars below each other, every one beginning where the last ended, its name above it and its worth beside it."""
    highest = max(step.standing.samples_per_second for step in way)
    room = size.width - 8 - drawing.width_of("10,000 (+10,000)") - 12
    parts, last = [], 0.0
    for index, step in enumerate(way):
        rate, y = step.standing.samples_per_second, 4 + index * ROW
        start, end = sorted((last, rate))
        x, wide = 4 + start / highest * room, max(2.0, (end - start) / highest * room)
        kind = "start" if index == 0 else "up" if rate >= last else "down"
        kind += " joint" if step.changes > 1 else ""
        bar = drawing.bar(kind, x, y + 19, wide, BAR)
        parts.append(drawing.text(4, y + 13, _fitting(step, way[0], size.width), "note" if index == 0 else "strong"))
        parts.append(drawing.titled(bar, f"{short(step.standing.config.values)}: {_rate(step.standing)} samples/s"))
        told = f"{_rate(step.standing)} {_gain(way, index)}" if index else f"{_rate(step.standing)} samples/s"
        parts.append(drawing.text(x + wide + 8, y + 19 + BAR - 2.5, told.strip(), "tick"))
        if index + 1 < len(way):
            edge = 4 + rate / highest * room
            parts.append(f'<path class="grid" d="M{edge:.1f} {y + 19 + BAR:.1f}V{y + ROW + 19:.1f}"/>')
        last = rate
    return parts


def _change(step: Step, first: Step) -> str:
    """`precision fp32 → bf16`; the knobs of a joint step with a plus between them."""
    values, before = step.standing.config.values, first.standing.config.values
    if not step.changed:
        return f"baseline: {short(values)}"
    told = []
    held = [knob for knob in KNOBS if knob.name in HELD_TOGETHER]
    if set(step.changed) & set(HELD_TOGETHER):
        told.append(
            "batch "
            + " → ".join("×".join(shown(knob, one).removeprefix("×") for knob in held) for one in (before, values))
        )
    for knob in KNOBS:
        if knob.name in step.changed and knob.name not in HELD_TOGETHER:
            told.append(f"{knob.label} {shown(knob, before)} → {shown(knob, values)}")
    return " + ".join(told)


def _fitting(step: Step, first: Step, width: int) -> str:
    """The change in as many words as there is room for: with its values, by name, or as a number of changes."""
    labels = " + ".join(knob.label for knob in KNOBS if knob.name in step.changed)
    for told in (_change(step, first), labels):
        if told and 1.1 * drawing.width_of(told) + 8 < width:
            return told
    return f"{step.changes} changes at once" if step.changed else "baseline"


def _gain(way: Sequence[Step], index: int) -> str:
    if index == 0:
        return ""
    one, other = way[index - 1].standing, way[index].standing
    change = other.samples_per_second - one.samples_per_second
    if change == 0:
        return "(±0)"
    widths = [it.relative_half_width or 0.02 for it in (one, other)]
    spread = sum((w * it.samples_per_second) ** 2 for w, it in zip(widths, (one, other), strict=True)) ** 0.5
    return f"({'+' if change > 0 else '–'}{format_rate(abs(change), spread / abs(change))})"


def _evidence(step: Step) -> str:
    probes = len(step.standing.trials)
    measured = f"measured in {probes} probe{'s' if probes > 1 else ''}"
    return measured if step.changes < 2 else f"{measured}, together only"


def _named(
    view: StudyView,
    plane: Plane,
    usable: Sequence[Standing],
    spots: dict[Config, tuple[float, float]],
    front: Sequence[Standing],
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


def _point(one: Standing) -> str:
    return f"{short(one.config.values)}: {_rate(one)} samples/s, {format_bytes(one.peak_bytes)}"


def _rate(one: Standing) -> str:
    return format_rate(one.samples_per_second, one.relative_half_width)
