"""The chart of throughput and memory against the micro-batch: one line per series, a cross where memory ran out.

Where one micro-batch alone was tried, the axis is the number of loader workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.core.records import Config, Value
from autotune.core.results import Trial
from autotune.knobs import KNOBS
from autotune.knobs.base import TACIT, Knob, MemoryEffect
from autotune.report import drawing
from autotune.report.bottleneck import loader_workers_of
from autotune.report.chart import Absence, Chart, Table
from autotune.report.drawing import WIDE, Axis, Plane, Size
from autotune.report.phrases import half_width, samples_per_second
from autotune.study.shown import shown_config, shown_value
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries
from autotune.units import format_bytes, format_rate

MOST_SERIES = 6  # as many as there are colours that can be distinguished; the fastest stay
BATCH, WORKERS = "micro-batch, samples (log scale)", "loader workers"
FAR_ABOVE_PEAKS = 10  # a limit so many times above all peaks does not bind, and would flatten the curves
PANEL_HEIGHT = 204  # pixels that the memory below the throughput needs


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One series: the configurations with the same values of unordered knobs that change memory, such as precision."""

    label: str
    fastest: tuple[ConfigSummary, ...]  # at each place, in order; usable ones have precedence
    exhausted: int | None  # smallest place above all that were measured at which memory ran out


@dataclass(frozen=True, kw_only=True)
class MemoryPanel:
    """The panel of peaks: its unit and the limit."""

    unit: int  # bytes
    up: Axis
    limit_bytes: int
    usable_bytes: int


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The content of both panels: the curves, and the function that gives a configuration's place."""

    view: StudyView
    curves: tuple[Curve, ...]
    place: Callable[[Config], int]

    @property
    def is_by_batch(self) -> bool:
        """Whether places are micro-batches; else numbers of workers."""
        return self.place is batch_of

    def across(self) -> Axis:
        """The axis that both panels share."""
        places = {self.place(one.config) for curve in self.curves for one in curve.fastest}
        places |= {curve.exhausted for curve in self.curves if curve.exhausted is not None}
        if self.is_by_batch:
            return drawing.logarithmic(sorted(places), BATCH)
        return drawing.ordinal({count: str(count) for count in sorted(places)}, WORKERS)


def batch_of(config: Config) -> int:
    """Return the micro-batch of a configuration."""
    return config.batch_size


def throughput(view: StudyView) -> Chart | Absence:
    """Draw samples/s with intervals, and below it peaks with the limit; a ring is the recommendation."""
    told = [trial for trial in view.trials if trial.result.measurement or trial.result.outcome.out_of_memory]
    batches, workers = ({of(trial.config) for trial in told} for of in (batch_of, loader_workers_of))
    place = loader_workers_of if len(batches) == 1 and len(workers) > 1 else batch_of
    drawn = Drawn(view=view, curves=curves(view, place), place=place)
    measured = [one for curve in drawn.curves for one in curve.fastest]
    if not measured:
        return Absence(name="throughput", title="Throughput", reason="no probe was measured")
    up = drawing.linear(1.04 * max(_bounds(one, view)[1] for one in measured), "samples/s")
    panel = _memory(drawn)
    highest = max(one.peak_bytes for one in measured)
    limit = view.request.memory_limit_bytes
    room = f"Memory is no constraint: at most {format_bytes(highest)} of {format_bytes(limit)}."

    def draw(size: Size) -> list[str]:
        upper = size if panel is None else replace(size, bottom=size.bottom + PANEL_HEIGHT)
        return [*_rates(upper, drawn, up), *(_peaks(size, drawn, panel) if panel else [])]

    single = any(not one.compared for one in measured)
    return Chart(
        name="throughput",
        title="Throughput and memory" if panel else "Throughput",
        summary=f"Throughput in samples/s against {'micro-batch' if drawn.is_by_batch else WORKERS}, up to "
        f"{format_bytes(highest)} of {format_bytes(limit)}. {'; '.join(map(_extent(place), drawn.curves))}.",
        table=_table(drawn),
        draw=draw,
        height=WIDE.height - 20 + (PANEL_HEIGHT if panel else 0),
        note=" ".join(
            (
                f"The fastest setting at each {'micro-batch' if drawn.is_by_batch else 'number of workers'}.",
                *(("Hollow: one probe of the search, less sure than those measured in rounds.",) if single else ()),
                *(() if panel else (room,)),
            )
        ),
    )


def _memory(drawn: Drawn) -> MemoryPanel | None:
    """Return the panel of memory; None if the limit is so far above that it does not bind."""
    highest = max(one.peak_bytes for curve in drawn.curves for one in curve.fastest)
    request = drawn.view.request
    limit, usable = request.memory_limit_bytes, request.memory_limit_bytes - request.headroom_bytes
    if limit > FAR_ABOVE_PEAKS * highest and not any(curve.exhausted for curve in drawn.curves):
        return None
    unit, name = (2**30, "GiB") if limit >= 2**30 else (2**20, "MiB")
    top = 1.15 * max(highest, limit) / unit  # with room for the limit's name
    up = drawing.linear(top, f"peak memory, {name}", lines=3)
    return MemoryPanel(unit=unit, up=up, limit_bytes=limit, usable_bytes=usable)


def _rates(size: Size, drawn: Drawn, up: Axis) -> list[str]:
    across, names = drawn.across(), [curve.label for curve in drawn.curves]
    is_lowest = size.bottom < PANEL_HEIGHT
    plane = Plane(size=size, across=across if is_lowest else replace(across, title=""), up=up, names=names)
    return [*plane.axes(), *_lines(plane, drawn, lambda one: one.samples_per_second), *_marks(plane, drawn)]


def _peaks(size: Size, drawn: Drawn, panel: MemoryPanel) -> list[str]:
    """Draw the lower panel: the range beyond the limit is shaded, and a ring marks the recommendation."""
    plane = Plane(size=replace(size, top=size.height - PANEL_HEIGHT + 18), across=drawn.across(), up=panel.up)
    left, right, limit = size.left, plane.right, panel.limit_bytes / panel.unit
    parts = [*plane.axes(), drawing.bar("beyond", left, plane.top, right - left, plane.y(limit) - plane.top)]
    for kind, count, shift in (("limit", panel.limit_bytes, -6), ("usable", panel.usable_bytes, 14)):
        y = plane.y(count / panel.unit)
        parts.append(f'<path class="{kind}" d="M{left} {y:.1f}H{right}"/>')
        parts.append(drawing.text(left + 6, y + shift, f"{kind} {format_bytes(count)}", "danger"))
    parts += _lines(plane, drawn, lambda one: one.peak_bytes / panel.unit, fall_to=1.03 * limit)
    best = drawn.view.recommendation
    if best is not None and (config := _placed(best.params)):
        parts.append(drawing.ring(plane.x(drawn.place(config)), plane.y(best.peak_bytes / panel.unit)))
    return parts


def _placed(values: Mapping[str, Value]) -> Config | None:
    return Config(values=dict(values)) if isinstance(values.get("batch_size"), int) else None


def _bounds(one: ConfigSummary, view: StudyView) -> tuple[float, float]:
    """Return the ends of the interval, at least as wide for a single probe as for one measured in rounds."""
    best = view.recommendation
    width = max(one.relative_half_width or 0.0, best.relative_half_width or 0.0 if best else 0.0)
    if one.compared or not width:
        return one.bounds
    return one.samples_per_second * max(0.0, 1 - width), one.samples_per_second * (1 + width)


def curves(view: StudyView, place: Callable[[Config], int] = batch_of) -> tuple[Curve, ...]:
    """Return the series, fastest first; knobs that never varied are not named."""
    probes: dict[tuple[Value, ...], tuple[list[ConfigSummary], list[Trial]]] = {}
    for trial in view.trials:
        probes.setdefault(_values_of(trial.config), ([], []))[1].append(trial)
    for summary in summaries(view):
        probes[_values_of(summary.config)][0].append(summary)
    named = [index for index in range(len(_series_knobs())) if len({values[index] for values in probes}) > 1] or [0]
    drawn = [_curve(_label(values, named), *found, place) for values, found in probes.items()]
    drawn = [curve for curve in drawn if curve.fastest or curve.exhausted is not None]
    return tuple(sorted(drawn, key=_top, reverse=True)[:MOST_SERIES])


def _series_knobs() -> list[Knob]:
    moving = (MemoryEffect.CHANGES, MemoryEffect.UNSEEN, MemoryEffect.SHRINKS)
    return [knob for knob in KNOBS if not knob.ordered and knob.memory in moving]


def _values_of(config: Config) -> tuple[Value, ...]:
    return tuple(config.values.get(knob.name, knob.default) for knob in _series_knobs())


def _label(values: tuple[Value, ...], named: Sequence[int]) -> str:
    """Return the label of a series: values like `no compile` are left out, unless nothing else is left."""
    knobs = _series_knobs()
    texts = [shown_value(knobs[index], {knobs[index].name: values[index]}) for index in named]
    return " ".join(text for text in texts if text not in TACIT) or f"{texts[0]} {knobs[named[0]].label}"


def _curve(
    label: str, measured: Sequence[ConfigSummary], trials: Sequence[Trial], place: Callable[[Config], int]
) -> Curve:
    fastest: dict[int, ConfigSummary] = {}
    for one in measured:
        if one.config.batch_size >= 1:
            here = place(one.config)
            fastest[here] = max(fastest.get(here, one), one, key=lambda it: (it.feasible, it.samples_per_second))
    largest = max(fastest, default=-1)
    exhausted = (place(trial.config) for trial in trials if trial.result.outcome.out_of_memory)
    return Curve(
        label=label,
        fastest=tuple(fastest[here] for here in sorted(fastest)),
        exhausted=min((here for here in exhausted if here > largest), default=None),
    )


def _top(curve: Curve) -> float:
    return max((one.samples_per_second for one in curve.fastest), default=0.0)


def _lines(
    plane: Plane, drawn: Drawn, height: Callable[[ConfigSummary], float], fall_to: float | None = None
) -> list[str]:
    """Draw each curve with its points; where memory ran out it falls to `fall_to`, else goes on at the last height."""
    parts, best = [], drawn.view.recommendation
    own = _values_of(Config(values=dict(best.params))) if best else None
    reached = [*reversed([*enumerate(drawn.curves)])]  # the fastest lies on top, and above it the recommended one
    for series, curve in sorted(reached, key=lambda it: any(_values_of(one.config) == own for one in it[1].fastest)):
        places = [(plane.x(drawn.place(one.config)), plane.y(height(one))) for one in curve.fastest]
        parts.append(f'<g class="series{series}">')
        if fall_to is None:
            parts += [
                _interval(plane, x, *_bounds(one, drawn.view))
                for (x, _), one in zip(places, curve.fastest, strict=True)
            ]
        parts.append(drawing.polyline(places, "line"))
        for one, (x, y) in zip(curve.fastest, places, strict=True):
            sign = drawing.marker(series, x, y, is_hollow=not one.compared)
            parts.append(drawing.with_tooltip(sign, _tip(one, drawn.view)))
        if curve.exhausted is not None:
            last = places[-1:] or [(0.0, plane.y(0))]
            end = (plane.x(curve.exhausted), last[0][1] if fall_to is None else plane.y(fall_to))
            parts.append(drawing.polyline([*places[-1:], end], "fall"))
            title = f"{curve.label}: out of memory at {curve.exhausted:,}"
            parts.append(drawing.with_tooltip(drawing.cross(*end), title))
        parts.append("</g>")
    return parts


def _tip(one: ConfigSummary, view: StudyView) -> str:
    rate = f"{samples_per_second(one.samples_per_second)} ± {half_width(one.relative_half_width)}"
    numbers = ", ".join(str(trial.number) for trial in one.measured)
    unusable = "" if one.feasible else ", not usable"
    name = shown_config(one.config.values, view.knobs)
    return f"{name}: {rate}, {format_bytes(one.peak_bytes)}{unusable} (probe {numbers})"


def _interval(plane: Plane, x: float, low: float, high: float) -> str:
    if low == high:
        return ""
    top, bottom = plane.y(high), plane.y(low)
    return f'<path class="interval" d="M{x:.1f} {bottom:.1f}V{top:.1f}m-3 0h6M{x - 3:.1f} {bottom:.1f}h6"/>'


def _marks(plane: Plane, drawn: Drawn) -> list[str]:
    """Draw the recommendation as a ring and the baseline as a square, with a key to both above the plane."""
    view, parts, key = drawn.view, [], plane.right
    best = view.recommendation
    for one in summaries(view):
        if one.config == view.request.baseline:
            parts.append(drawing.square(plane.x(drawn.place(one.config)), plane.y(one.samples_per_second)))
            parts += [drawing.text(key, 13, "baseline", "note", "end"), drawing.square(key - 72, 9)]
            key -= 98
    if best is not None and (config := _placed(best.params)):
        ring = drawing.ring(plane.x(drawn.place(config)), plane.y(best.samples_per_second))
        parts.append(drawing.with_tooltip(ring, f"recommended: {samples_per_second(best.samples_per_second)}"))
        parts += [drawing.text(key, 13, "recommended", "good", "end"), drawing.ring(key - 112, 10.5)]
    return parts


def _table(drawn: Drawn) -> Table:
    rows = []
    for curve in drawn.curves:
        for one in curve.fastest:
            spread = half_width(one.relative_half_width)
            numbers = (format_rate(one.samples_per_second), spread, format_bytes(one.peak_bytes))
            remark = "not usable" if not one.feasible else "measured in rounds" if one.compared else "one probe"
            name = shown_config(one.config.values, drawn.view.knobs)
            rows.append((curve.label, f"{drawn.place(one.config):,}", name, *numbers, remark))
        if curve.exhausted is not None:
            rows.append((curve.label, f"{curve.exhausted:,}", "", "–", "–", "–", "out of memory"))
    place = "micro-batch" if drawn.is_by_batch else WORKERS
    titles = ("line", place, "fastest configuration", "samples/s", "±", "peak", "remark")
    return Table(titles=titles, rows=tuple(rows))


def _extent(place: Callable[[Config], int]) -> Callable[[Curve], str]:
    def extent(curve: Curve) -> str:
        if not curve.fastest:
            return f"{curve.label}: out of memory everywhere"
        best = max(curve.fastest, key=lambda one: one.samples_per_second)
        end = "" if curve.exhausted is None else f", out of memory from {curve.exhausted:,}"
        return f"{curve.label}: up to {format_rate(best.samples_per_second)} at {place(best.config):,}{end}"

    return extent
