"""The chart of the precision check: losses of paired runs, against the band that full precision spans."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from autotune.core.requests import StabilityRequest
from autotune.core.results import LossRun, LossVerdict, StabilityResult
from autotune.precision.judge import LAST, Thresholds, judge, names, pooled
from autotune.report import drawing
from autotune.report.chart import Absence, Chart, Table
from autotune.report.drawing import Plane, Size
from autotune.report.phrases import plain
from autotune.study.view import StudyView

TITLE = "Precision check"
FULL = "full precision"
READING = "Same weights, same data in the same order. Grey: full precision, all seeds, and with weights off by 1e-6."
THICK = 4  # pixels on either side of the band that stay visible below the lines


Comparison = tuple[StabilityRequest, StabilityResult]


def precision(view: StudyView) -> Chart | Absence:
    """Draw the paired runs of the study."""
    return paired_losses(view.comparisons, view.request.goal.loss_tolerance)


def paired_losses(comparisons: Sequence[Comparison], tolerance: float) -> Chart | Absence:
    """Draw one line per tested precision, judged with that tolerance, against the band of full precision."""
    tested = [pair for pair in pooled(comparisons) if any(_finite(run) for run in pair[1].runs)]
    if not tested:
        return Absence(name="precision", title=TITLE, reason=_why(comparisons))
    band = _band([run for _, result in tested for run in result.runs if run.role != "candidate"])
    drawn = [(names(request)[0], [run for run in result.runs if run.role == "candidate"]) for request, result in tested]
    finite = [loss for _, runs in drawn for run in runs for loss in _finite(run)]
    highest = max([*finite, *(high for _, _, high in band)])
    lowest = min([*finite, *(low for _, low, _ in band), 0.6 * highest])
    steps = max(len(run.losses) for _, result in tested for run in result.runs)

    def draw(size: Size) -> list[str]:
        labels = [name for name, _ in drawn]
        up = drawing.linear(highest, "training loss", low=lowest)
        plane = Plane(size=size, across=drawing.linear(steps, "optimizer step"), up=up, names=labels)
        parts = [*plane.axes(), _area(plane, band)]
        for arm, (_, runs) in enumerate(drawn):
            parts.append(f'<g class="arm{arm}">')
            for run in runs:
                parts += _run(plane, run, arm)
            parts.append("</g>")
        return parts + _key(plane)

    verdicts = [judge(request, result, Thresholds(tolerance=tolerance)) for request, result in tested]
    rows = [_row(*comparison, verdict) for comparison, verdict in zip(tested, verdicts, strict=True)]
    compared = (f"loss, last {LAST}", "of", "difference", "allowed")
    return Chart(
        name="precision",
        title=TITLE,
        summary="Training losses of paired runs. " + "; ".join(plain(verdict.reason.text) for verdict in verdicts),
        table=Table(
            titles=("precision", "verdict", "batch", "seeds", "steps", *compared),
            rows=tuple(rows),
        ),
        draw=draw,
        finding="; ".join(plain(verdict.reason.text) for verdict in verdicts),
        note=READING,
    )


def _why(comparisons: Sequence[Comparison]) -> str:
    failures = [f"{names(request)[0]}: {result.failure.message}" for request, result in comparisons if result.failure]
    return failures[0] if failures else "no paired runs were made"


def _finite(run: LossRun) -> list[float]:
    return [loss for loss in run.losses if loss is not None]


def _band(runs: Sequence[LossRun]) -> list[tuple[int, float, float]]:
    """Return step, lowest and highest loss over the runs."""
    longest = max((len(run.losses) for run in runs), default=0)
    band = []
    for step in range(longest):
        losses = [loss for run in runs if step < len(run.losses) and (loss := run.losses[step]) is not None]
        if losses:
            band.append((step, min(losses), max(losses)))
    return band


def _area(plane: Plane, band: Sequence[tuple[int, float, float]]) -> str:
    """Draw the band, thick enough to be seen."""
    over = [(plane.x(step), plane.y(high) - THICK) for step, _, high in band]
    under = [(plane.x(step), plane.y(low) + THICK) for step, low, _ in reversed(band)]
    return drawing.polyline([*over, *under], "band")


def _run(plane: Plane, run: LossRun, arm: int) -> list[str]:
    """Draw the line of a run, with a gap where the loss was not finite and a cross where that began."""
    parts: list[str] = []
    stretch: list[tuple[float, float]] = []
    for step, loss in enumerate(run.losses):
        if loss is not None:
            stretch.append((plane.x(step), plane.y(loss)))
        elif stretch:
            parts += [drawing.polyline(stretch, "line"), drawing.cross(*stretch[-1])]
            stretch = []
    parts.append(drawing.polyline(stretch, "line"))
    return [*parts, drawing.marker(arm, *stretch[-1])] if stretch else parts


def _key(plane: Plane) -> list[str]:
    """Draw the band's sign, above the plane."""
    x = plane.right - drawing.width_of(FULL) - 20
    return [f'<path class="band" d="M{x:.1f} 4h14v9h-14z"/>', drawing.text(plane.right, 13, FULL, "note", "end")]


def _row(request: StabilityRequest, result: StabilityResult, verdict: LossVerdict) -> tuple[str, ...]:
    own = [run for run in result.runs if run.role == "candidate"]
    full = [run for run in result.runs if run.role == "reference"]
    name, reference = names(request)
    shares = ["–" if share is None else f"{share:.2%}" for share in (verdict.difference, verdict.allowed)]
    compared = (_late(own), f"{reference} {_late(full)}", *shares)
    return (name, verdict.verdict, str(verdict.batch_size), str(verdict.seeds), str(verdict.steps), *compared)


def _late(runs: Sequence[LossRun]) -> str:
    losses = [loss for run in runs for loss in run.losses[-LAST:] if loss is not None]
    return f"{statistics.fmean(losses):.4g}" if losses else "–"
