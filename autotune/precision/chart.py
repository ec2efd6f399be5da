"""The chart of the precision check: by how much each precision learns less than full precision, and the tolerance."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from autotune.core.results import LossVerdict
from autotune.precision.arithmetic import names, precision_of
from autotune.precision.judge import LAST_LOSSES, Paired, PrecisionCheck, Thresholds, judge, paired, pooled
from autotune.precision.records import LossRun, PrecisionCheckRequest, PrecisionCheckResult
from autotune.report import drawing
from autotune.report.chart import Absence, Chart, Table
from autotune.report.drawing import Plane, Size
from autotune.report.losses import match_phrase
from autotune.report.phrases import plain
from autotune.study.view import StudyView
from autotune.units import format_share

TITLE = "Precision check"
TITLES = ("precision", "verdict", "batch", "seeds", "steps", f"loss, last {LAST_LOSSES}", "of", "difference", "allowed")
BEHIND = "behind, % of the loss decrease"
READING = (
    "Same weights, same data in the same order: loss minus that of {reference}, one line per seed. Grey line: "
    f"{{reference}} with weights off by 1e-6. The mean of the last {LAST_LOSSES} steps is judged."
)
ROOM_ABOVE = 1.5  # times the tolerance that the axis reaches at least

Shares = list[float | None]  # one for each step, in % of the loss decrease; None: not finite


def precision(view: StudyView) -> Chart | Absence:
    """Draw the paired runs of the study."""
    return paired_losses(view.precision_checks, view.request.goal.loss_tolerance)


def paired_losses(checks: Sequence[PrecisionCheck], tolerance: float) -> Chart | Absence:
    """Draw how far each tested precision is behind full precision, within and beyond that tolerance."""
    learning = [(pair, [one for one in paired(pair[1].runs) if one.learned]) for pair in pooled(checks)]
    tested = [(pair, runs) for pair, runs in learning if runs]  # else there is no decrease to take a share of
    if not tested:
        return Absence(name="precision", title=TITLE, reason=_why(checks, tolerance))
    drawn = [[_shares(runs, runs.candidate) for runs in seeds] for _, seeds in tested]
    nudged = [_shares(runs, runs.perturbed) for _, seeds in tested for runs in seeds]
    labels = [names(request)[0] for (request, _), _ in tested]
    every = [*nudged, *(shares for seeds in drawn for shares in seeds)]
    finite = [abs(share) for shares in every for share in shares if share is not None]
    highest = max([*finite, ROOM_ABOVE * 100 * tolerance])
    steps = max(runs.steps for _, seeds in tested for runs in seeds)

    def draw(size: Size) -> list[str]:
        up = drawing.linear(highest, BEHIND, low=-highest)
        plane = Plane(size=size, across=drawing.linear(steps, "optimizer step"), up=up, names=labels)
        parts = [*_allowed(plane, tolerance), *plane.axes()]
        parts += [part for shares in nudged for part in _line(plane, shares, "nudged")]
        return [*parts, *(part for number, seeds in enumerate(drawn) for part in _series(plane, number, seeds))]

    verdicts = [judge(*pair, Thresholds(tolerance=tolerance)) for pair, _ in tested]
    takeaway = "; ".join(
        match_phrase(it, precision_of(pair[0].reference)) if it.verdict == "ok" else plain(it.reason.text)
        for it, (pair, _) in zip(verdicts, tested, strict=True)
    )
    return Chart(
        name="precision",
        title=TITLE,
        summary=f"Training losses of paired runs. {takeaway}",
        table=Table(titles=TITLES, rows=tuple(_row(*pair, it) for (pair, _), it in zip(tested, verdicts, strict=True))),
        draw=draw,
        takeaway=takeaway,
        note=READING.format(reference=" or ".join(dict.fromkeys(names(request)[1] for (request, _), _ in tested))),
    )


def _why(checks: Sequence[PrecisionCheck], tolerance: float) -> str:
    verdicts = [judge(*pair, Thresholds(tolerance=tolerance)) for pair in pooled(checks)]
    return plain(verdicts[0].reason.text) if verdicts else "no paired runs were made"


def _shares(runs: Paired, run: LossRun) -> Shares:
    return [None if one is None else 100 * one / runs.decrease for one in runs.differences(run)]


def _allowed(plane: Plane, tolerance: float) -> list[str]:
    """Draw the tolerated range, and its name above the plane."""
    name, high, low = f"allowed ±{format_share(tolerance)}", plane.y(100 * tolerance), plane.y(-100 * tolerance)
    return [
        drawing.bar("band", plane.size.left, high, plane.right - plane.size.left, low - high),
        drawing.bar("band", plane.right - drawing.width_of(name) - 20, 4, 14, 9),
        drawing.text(plane.right, 13, name, "note", "end"),
    ]


def _series(plane: Plane, number: int, seeds: Sequence[Shares]) -> list[str]:
    """Draw one precision: the line of each seed, with a marker at its end."""
    parts = [f'<g class="series{number}">']
    for shares in seeds:
        parts += _line(plane, shares, "line")
        parts += [drawing.marker(number, *end)] if (end := _end(plane, shares)) else []
    return [*parts, "</g>"]


def _line(plane: Plane, shares: Shares, kind: str) -> list[str]:
    """Draw the line of a run, with a gap where the loss was not finite and a cross where the gap begins."""
    parts: list[str] = []
    stretch: list[tuple[float, float]] = []
    for step, share in enumerate(shares):
        if share is not None:
            stretch.append((plane.x(step), plane.y(share)))
        elif stretch:
            parts += [drawing.polyline(stretch, kind), drawing.cross(*stretch[-1])]
            stretch = []
    return [*parts, drawing.polyline(stretch, kind)]


def _end(plane: Plane, shares: Shares) -> tuple[float, float] | None:
    return (plane.x(len(shares) - 1), plane.y(shares[-1])) if shares and shares[-1] is not None else None


def _row(request: PrecisionCheckRequest, result: PrecisionCheckResult, verdict: LossVerdict) -> tuple[str, ...]:
    own = [run for run in result.runs if run.role == "candidate"]
    full = [run for run in result.runs if run.role == "reference"]
    name, reference = names(request)
    shares = ["–" if share is None else f"{share:.2%}" for share in (verdict.difference, verdict.allowed)]
    compared = (_late(own), f"{reference} {_late(full)}", *shares)
    return (name, verdict.verdict, str(verdict.batch_size), str(verdict.seeds), str(verdict.steps), *compared)


def _late(runs: Sequence[LossRun]) -> str:
    losses = [loss for run in runs for loss in run.losses[-LAST_LOSSES:] if loss is not None]
    return f"{statistics.fmean(losses):.4g}" if losses else "–"
