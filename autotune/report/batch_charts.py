"""Throughput and memory against the micro-batch: one line per arm, a cross where memory ran out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.core.records import Config, Value
from autotune.core.results import Trial
from autotune.knobs import KNOBS
from autotune.knobs.base import TACIT, MemoryEffect
from autotune.report import drawing
from autotune.report.chart import Absence, Chart, Table
from autotune.report.drawing import Plane, Size
from autotune.report.phrases import half_width, samples_per_second, short, shown
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries
from autotune.units import format_bytes, format_rate

ARM_KNOBS = [knob for knob in KNOBS if not knob.ordered and knob.memory is MemoryEffect.CHANGES]
MOST_ARMS = 6  # as many as there are colours that can be distinguished; the fastest stay
BATCH = "micro-batch, samples (log scale)"
FAR = 10  # a limit that many times above every peak binds nothing, and would flatten the curves
READING = "The fastest setting at each micro-batch. ✕: memory ran out."


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One arm: all configurations with the same values of the unordered knobs that change memory, such as precision."""

    label: str
    fastest: tuple[ConfigSummary, ...]  # at each micro-batch, in their order; a usable one before one that is not
    exhausted_batch: int | None  # smallest micro-batch above all that were measured at which memory ran out


def throughput(view: StudyView) -> Chart | Absence:
    """Samples/s against the micro-batch, with intervals; the recommendation in a ring, the baseline in a square."""
    drawn = curves(view)
    measured = [one for curve in drawn for one in curve.fastest]
    if not measured:
        return Absence(name="throughput", title="Throughput", reason="no probe was measured")
    up = drawing.linear(1.04 * max(one.bounds[1] for one in measured), "samples/s")

    def draw(size: Size) -> list[str]:
        plane = _plane(size, drawn, up)
        return [*plane.axes(), *_lines(plane, drawn, lambda one: one.samples_per_second), *_marks(plane, view)]

    return Chart(
        name="throughput",
        title="Throughput",
        summary=f"Throughput in samples/s against micro-batch. {'; '.join(_extent(curve) for curve in drawn)}.",
        table=_table(
            drawn,
            ("samples/s", "±"),
            lambda one: (format_rate(one.samples_per_second), half_width(one.relative_half_width)),
        ),
        draw=draw,
        note=f"{READING} Bars are 95% intervals.",
    )


def memory(view: StudyView) -> Chart | Absence:
    """Peak memory of the same configurations, with the limit and what is kept free below it."""
    drawn = curves(view)
    highest = max((one.peak_bytes for curve in drawn for one in curve.fastest), default=0)
    limit, usable = view.request.memory_limit_bytes, view.request.memory_limit_bytes - view.request.headroom_bytes
    if not highest:
        return Absence(name="memory", title="Memory", reason="no probe was measured")
    if limit > FAR * highest and not any(curve.exhausted_batch for curve in drawn):
        reason = f"no probe needed more than {format_bytes(highest)} of {format_bytes(limit)}"
        return Absence(name="memory", title="Memory", reason=reason)
    unit, name = (2**30, "GiB") if limit >= 2**30 else (2**20, "MiB")
    up = drawing.linear(1.15 * max(highest, limit) / unit, f"peak memory, {name}")  # with room for the limit's name
    limits = (("limit", limit, -6), ("usable", usable, 14))

    def draw(size: Size) -> list[str]:
        plane = _plane(size, drawn, up)
        left, right = size.left, plane.right
        parts = [*plane.axes(), drawing.bar("beyond", left, plane.top, right - left, plane.y(limit / unit) - plane.top)]
        for kind, count, shift in limits:
            y = plane.y(count / unit)
            parts.append(f'<path class="{kind}" d="M{left} {y:.1f}H{right}"/>')
            parts.append(drawing.text(left + 6, y + shift, f"{kind} {format_bytes(count)}", "danger"))
        return parts + _lines(plane, drawn, lambda one: one.peak_bytes / unit, fall_to=1.03 * limit / unit)

    said = ", ".join(f"{kind} {format_bytes(count)}" for kind, count, _ in limits)
    return Chart(
        name="memory",
        title="Memory",
        summary=f"Peak memory against micro-batch, up to {format_bytes(highest)}; {said}.",
        table=_table(drawn, ("peak",), lambda one: (format_bytes(one.peak_bytes),)),
        draw=draw,
        note=READING,
    )


def curves(view: StudyView) -> tuple[Curve, ...]:
    """The arms, fastest first; knobs that never varied are not named."""
    arms: dict[tuple[Value, ...], tuple[list[ConfigSummary], list[Trial]]] = {}
    for trial in view.trials:
        arms.setdefault(_arm(trial.config), ([], []))[1].append(trial)
    for summary in summaries(view):
        arms[_arm(summary.config)][0].append(summary)
    named = [index for index in range(len(ARM_KNOBS)) if len({arm[index] for arm in arms}) > 1] or [0]
    drawn = [_curve(_label(arm, named), *probes) for arm, probes in arms.items()]
    drawn = [curve for curve in drawn if curve.fastest or curve.exhausted_batch is not None]
    return tuple(sorted(drawn, key=_top, reverse=True)[:MOST_ARMS])


def _arm(config: Config) -> tuple[Value, ...]:
    return tuple(config.values.get(knob.name, knob.default) for knob in ARM_KNOBS)


def _label(arm: tuple[Value, ...], named: Sequence[int]) -> str:
    """What is not done needs no word, unless there is no other."""
    texts = [shown(ARM_KNOBS[index], {ARM_KNOBS[index].name: arm[index]}) for index in named]
    return " ".join(text for text in texts if text not in TACIT) or f"{texts[0]} {ARM_KNOBS[named[0]].label}"


def _curve(label: str, measured: Sequence[ConfigSummary], trials: Sequence[Trial]) -> Curve:
    fastest: dict[int, ConfigSummary] = {}
    for one in measured:
        if (batch := one.config.batch_size) >= 1:
            fastest[batch] = max(fastest.get(batch, one), one, key=lambda it: (it.feasible, it.samples_per_second))
    largest = max(fastest, default=0)
    exhausted = (trial.config.batch_size for trial in trials if trial.result.outcome.out_of_memory)
    return Curve(
        label=label,
        fastest=tuple(fastest[batch] for batch in sorted(fastest)),
        exhausted_batch=min((batch for batch in exhausted if batch > largest), default=None),
    )


def _top(curve: Curve) -> float:
    return max((one.samples_per_second for one in curve.fastest), default=0.0)


def _plane(size: Size, drawn: Sequence[Curve], up: drawing.Axis) -> Plane:
    batches = {one.config.batch_size for curve in drawn for one in curve.fastest}
    batches |= {curve.exhausted_batch for curve in drawn if curve.exhausted_batch is not None}
    names = [curve.label for curve in drawn]
    return Plane(size=size, across=drawing.logarithmic(sorted(batches), BATCH), up=up, names=names)


def _lines(
    plane: Plane, drawn: Sequence[Curve], height: Callable[[ConfigSummary], float], fall_to: float | None = None
) -> list[str]:
    """Each curve with its points, and its fall where memory ran out: to `fall_to`, else along the last height."""
    parts = []
    for arm, curve in reversed([*enumerate(drawn)]):  # the fastest lies on top
        places = [(plane.x(one.config.batch_size), plane.y(height(one))) for one in curve.fastest]
        intervals = [_interval(plane, one) for one in curve.fastest if one.relative_half_width and fall_to is None]
        parts += [f'<g class="arm{arm}">', *intervals, drawing.polyline(places, "line")]
        for one, (x, y) in zip(curve.fastest, places, strict=True):
            parts.append(drawing.titled(drawing.marker(arm, x, y, is_hollow=not one.feasible), _tip(one)))
        if curve.exhausted_batch is not None:
            last = places[-1:] or [(0.0, plane.y(0))]
            end = (plane.x(curve.exhausted_batch), last[0][1] if fall_to is None else plane.y(fall_to))
            parts.append(drawing.polyline([*places[-1:], end], "fall"))
            title = f"{curve.label}: out of memory at {curve.exhausted_batch:,}"
            parts.append(drawing.titled(drawing.cross(*end), title))
        parts.append("</g>")
    return parts


def _tip(one: ConfigSummary) -> str:
    rate = f"{samples_per_second(one.samples_per_second)} ± {half_width(one.relative_half_width)}"
    numbers = ", ".join(str(trial.number) for trial in one.measured)
    unusable = "" if one.feasible else ", not usable"
    return f"{short(one.config.values)}: {rate}, {format_bytes(one.peak_bytes)}{unusable} (probe {numbers})"


def _interval(plane: Plane, one: ConfigSummary) -> str:
    x, (low, high) = plane.x(one.config.batch_size), one.bounds
    top, bottom = plane.y(high), plane.y(low)
    return f'<path class="interval" d="M{x:.1f} {bottom:.1f}V{top:.1f}m-3 0h6M{x - 3:.1f} {bottom:.1f}h6"/>'


def _marks(plane: Plane, view: StudyView) -> list[str]:
    """The recommendation in a ring and the baseline in a square, with a key to both above the plane."""
    best, parts, key = view.recommendation, [], plane.right
    for one in summaries(view):
        if one.config == view.request.baseline:
            parts.append(drawing.square(plane.x(one.config.batch_size), plane.y(one.samples_per_second)))
            parts += [drawing.text(key, 13, "baseline", "note", "end"), drawing.square(key - 72, 9)]
            key -= 98
    if best is not None and isinstance(batch := best.params.get("batch_size"), int):
        ring = drawing.ring(plane.x(batch), plane.y(best.samples_per_second))
        parts.append(drawing.titled(ring, f"recommended: {samples_per_second(best.samples_per_second)}"))
        parts += [drawing.text(key, 13, "recommended", "good", "end"), drawing.ring(key - 112, 10.5)]
    return parts


def _table(drawn: Sequence[Curve], titles: tuple[str, ...], cells: Callable[[ConfigSummary], tuple[str, ...]]) -> Table:
    """Every point, and of each curve the batch at which memory ran out."""
    rows = []
    for curve in drawn:
        for one in curve.fastest:
            remark = "" if one.feasible else "not usable"
            rows.append((curve.label, f"{one.config.batch_size:,}", short(one.config.values), *cells(one), remark))
        if curve.exhausted_batch is not None:
            rows.append((curve.label, f"{curve.exhausted_batch:,}", "", *("–" for _ in titles), "out of memory"))
    return Table(titles=("line", "micro-batch", "fastest configuration", *titles, "remark"), rows=tuple(rows))


def _extent(curve: Curve) -> str:
    if not curve.fastest:
        return f"{curve.label}: out of memory everywhere"
    best = max(curve.fastest, key=lambda one: one.samples_per_second)
    end = "" if curve.exhausted_batch is None else f", out of memory from {curve.exhausted_batch:,}"
    return f"{curve.label}: up to {format_rate(best.samples_per_second)} at {best.config.batch_size:,}{end}"
