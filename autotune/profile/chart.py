"""The pictures of a profile: one step as a strip of its parts and modules, and memory by category against its limit.

├───────────────── one step ─────────────────┤
│data│   forward    │     backward     │opt.│
     │ 0  │  2  │..│ .. │  2  │   0   │        modules: forward as they ran, backward in reverse
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotune.harmless import cropped, plain
from autotune.profile.judge import at_most, share_of_parts
from autotune.profile.module_tree import parts_of
from autotune.profile.records import PARTS, ModuleSeconds, Part, ProfileResult
from autotune.report import drawing
from autotune.report.chart import Chart, Table
from autotune.report.drawing import Size
from autotune.units import format_bytes, format_ms, format_share

STRIP = Size(width=1140, height=0, kind="strip")  # the whole width of a page
ROW, GAP = 26, 3  # pixels of a row of the strip, and below it
MOST_DEPTH = 4  # rows of modules: deeper modules count for the one that contains them
LEAST_PIXELS = 1.5  # of a block: narrower ones cannot be seen
ROOM = 10  # pixels of a block beside its name
SERIES: Mapping[Part, int] = {
    "data": 4, "copy": 1, "forward": 0, "backward": 2, "communication": 6, "optimizer": 3, "other": 5,
}  # fmt: skip
COLOUR_COUNT = 9  # of report/chart.css
LEAST_DRAWN = 0.001  # of the peak: a smaller category cannot be seen in the bar
LIMIT = "limit"
FAR_LIMIT_RATIO = 8  # times the used memory: with a limit beyond that, the bar would be too short to read


@dataclass(frozen=True, kw_only=True)
class Span:
    """One block of the strip: seconds from the start of a step, in a row below the block that contains it."""

    name: str
    part: Part
    start: float
    seconds: float
    row: int
    kind: str = ""  # the module's class


def blocks(result: ProfileResult) -> list[Span]:
    """Return the parts of a step in their order, and below forward and backward pass their modules.

    Modules were watched in other steps, which watching makes slower: so their share of the pass counts.
    """
    found, start = list[Span](), 0.0
    for one in sorted(result.parts, key=lambda one: PARTS.index(one.part)):
        found.append(Span(name=one.part, part=one.part, start=start, seconds=one.seconds, row=0))
        if one.part in ("forward", "backward"):
            found += _modules(result.modules, one.part, start, one.seconds)
        start += one.seconds
    return found


def _modules(modules: Sequence[ModuleSeconds], part: Part, start: float, seconds: float) -> Iterator[Span]:
    taken = {one.name: one.forward if part == "forward" else one.backward for one in modules}
    if not (total := sum(taken.values())):
        return
    kinds, scale = {one.name: one.kind for one in modules}, seconds / total

    def below(prefix: str, start: float, row: int) -> Iterator[Span]:
        if row > MOST_DEPTH:
            return
        names = _below(prefix, list(taken))
        for name in names if part == "forward" else reversed(names):
            inside = [other for other in taken if other == name or other.startswith(f"{name}.")]
            width = scale * sum(taken[other] for other in inside)
            yield Span(name=name, part=part, start=start, seconds=width, row=row, kind=kinds.get(name, ""))
            yield from below(name, start, row + 1)
            start += width

    yield from below("", start, 1)


def _below(prefix: str, names: Sequence[str]) -> list[str]:
    """Return the direct children of a module, also mere containers; at the top the loss, too, which is last."""
    loss = [one for one in names if one.startswith("(")] if not prefix else []
    return [*parts_of(prefix, [one for one in names if not one.startswith("(")]), *loss]


def strip(result: ProfileResult) -> Chart:
    """Draw one step, with the table of its parts."""
    found = blocks(result)
    rows = 1 + max((one.row for one in found), default=0)
    told = [
        (
            one.part,
            f"{format_ms(one.seconds)} ms",
            format_share(share_of_parts(result, one.part)),
            f"{at_most(share_of_parts(result, one.part)):.2f}×",
        )
        for one in result.parts
    ]
    return Chart(
        name="strip",
        title=f"One step of {format_ms(result.seconds)} ms",
        summary="; ".join(f"{part} {time}, {of_step}" for part, time, of_step, _ in told),
        note="Below forward and backward pass their modules, by share; what a module computes itself is left open.",
        table=Table(titles=("part", "time", "share of a step", "if it took no time"), rows=tuple(told)),
        draw=lambda size: _strip(found, result.seconds, size),
        height=rows * (ROW + GAP),
    )


def _strip(found: Sequence[Span], seconds: float, size: Size) -> list[str]:
    return [
        part for one in found for part in _block(one, size.width / seconds, f"{format_ms(one.seconds)} ms", seconds)
    ]


def _block(one: Span, scale: float, time: str, step_seconds: float) -> list[str]:
    wide, x, y = one.seconds * scale, one.start * scale, one.row * (ROW + GAP)
    if wide < LEAST_PIXELS:
        return []
    name = plain(one.name)
    shape = f'<g class="series{SERIES[one.part]}">{drawing.bar("block", x, y, wide, ROW)}</g>'
    title = " ".join(filter(None, (name, plain(one.kind)))) + (f", {one.part}" if one.row else "")
    told = drawing.with_tooltip(shape, f"{title}: {time}, {format_share(one.seconds / step_seconds)} of a step")
    short = name if one.row < 2 else name.rpartition(".")[2]
    full, room = f"{short} {time}", wide - ROOM
    label = next((text for text in (full, short) if drawing.width_of(text) <= room), "")
    if not label and (most := int(room / drawing.CHARACTER)) >= 3:
        label = cropped(short, most)
    return [told, *([drawing.text(x + ROOM / 2, y + ROW - 8, label, "inside")] if label else [])]


def memory(categories: Sequence[tuple[str, int]], limit_bytes: int) -> Chart:
    """Draw the bytes of each category in one bar, and the limit; negative ones are only in the table."""
    total = sum(count for _, count in categories)
    told = [(name, format_bytes(count), format_share(count / total)) for name, count in categories if count]
    drawn = [one for one in categories if one[1] >= LEAST_DRAWN * total > 0]
    return Chart(
        name="memory",
        title=f"Memory: {format_bytes(total)} of {format_bytes(limit_bytes)}",
        summary="; ".join(f"{name} {amount}, {of_peak}" for name, amount, of_peak in told)
        + f"; the limit is {format_bytes(limit_bytes)}",
        table=Table(titles=("category", "bytes", "share of the peak"), rows=tuple(told)),
        draw=lambda size: _stack(drawn, limit_bytes, size),
        height=ROW + 34 + 18 * len(drawn),
    )


def _stack(categories: Sequence[tuple[str, int]], limit_bytes: int, size: Size) -> list[str]:
    """Draw a bar up to the limit if that is near; else up to the used memory, with a text that the limit is far."""
    ends = [0.0]
    for _, count in categories:
        ends.append(ends[-1] + count)
    is_near = limit_bytes <= FAR_LIMIT_RATIO * ends[-1]
    scale = (size.width - 8) / max(limit_bytes if is_near else 0, ends[-1], 1)
    parts = []
    for number, ((name, count), (first, last)) in enumerate(zip(categories, pairwise(ends), strict=True)):
        series, y = number % COLOUR_COUNT, ROW + 30 + 18 * number
        kind = "block" if number < COLOUR_COUNT else "hollow"  # else the tenth would look like the first
        shape = drawing.bar(kind, 4 + first * scale, 4, (last - first) * scale, ROW)
        tip = f"{name}: {format_bytes(count)}"
        parts.append(f'<g class="series{series}">{drawing.with_tooltip(shape, tip)}</g>')
        mark = f'<g class="series{series}">{drawing.bar(kind, 4, y - 11, 12, 12)}</g>'
        parts += [mark, drawing.text(24, y, f"{name} {format_bytes(count)}", "tick")]
    if is_near:
        x = 4 + limit_bytes * scale
        parts.append(f'<path class="limit" d="M{x:.1f} 0V{ROW + 8}"/>')
        parts.append(drawing.text(x - 4, ROW + 18, LIMIT, "danger", "end"))
    return parts


def wide(chart: Chart) -> str:
    """Return the chart over the whole width of a page."""
    return chart.svg(STRIP)
