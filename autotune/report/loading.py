"""Data loading: what loader and model manage together and alone, and how much of a step is waiting, by workers."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.knobs import loader_workers
from autotune.report import drawing
from autotune.report.chart import Absence, Chart, Table
from autotune.report.drawing import Plane, Size
from autotune.report.phrases import samples_per_second, short
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries
from autotune.tuning.advice import LOADER_BOUND
from autotune.units import counted, format_rate, format_share

TITLE = "Data loading"
NAMES = ("together", "model alone", "loader alone")
READING = "Fastest configuration with each number of workers; in brackets what a step waits. Above {}: data-bound."


def loading(view: StudyView) -> Chart | Absence:
    """Coupled, compute-only and loader-only rates against workers, each number of them by its fastest configuration."""
    if not view.request.facts.tunes_loader:
        return Absence(name="loading", title=TITLE, reason="the batches are synthetic, there is no loader")
    fastest = _fastest_by_workers(view)
    if not fastest:
        return Absence(name="loading", title=TITLE, reason="no probe was measured")
    rates = {workers: _rates(one) for workers, one in fastest.items()}
    names = NAMES if any(any(alone) for _, *alone in rates.values()) else NAMES[:1]
    ticks = {workers: f"{workers} ({format_share(one.data_wait_share)})" for workers, one in fastest.items()}
    across = drawing.ordinal(ticks, "loader workers (share of a step that waits)")
    up = drawing.linear(1.04 * max(rate for three in rates.values() for rate in three if rate), "samples/s")
    tips = {workers: _tip(workers, one, rates[workers]) for workers, one in fastest.items()}

    def draw(size: Size) -> list[str]:
        plane = Plane(size=size, across=across, up=up, names=names)
        parts = plane.axes()
        for arm in reversed(range(len(names))):
            spots = [(plane.x(w), plane.y(rate), w) for w, three in rates.items() if (rate := three[arm]) is not None]
            parts += [f'<g class="arm{arm}">', drawing.polyline([(x, y) for x, y, _ in spots], "line")]
            parts += [drawing.titled(drawing.marker(arm, x, y), tips[workers]) for x, y, workers in spots]
            parts.append("</g>")
        return parts

    return Chart(
        name="loading",
        title=TITLE,
        summary=f"Samples/s against loader workers. {'; '.join(tips.values())}",
        table=Table(
            titles=("loader workers", "configuration", *NAMES, "waiting for data"),
            rows=tuple(
                (
                    str(workers), short(one.config.values),
                    *("–" if rate is None else format_rate(rate) for rate in rates[workers]),
                    format_share(one.data_wait_share),
                )
                for workers, one in fastest.items()
            ),
        ),
        draw=draw,
        note=READING.format(format_share(LOADER_BOUND))
        + (" Loader and model were not timed apart in this study." if len(names) == 1 else ""),
    )  # fmt: skip


def _fastest_by_workers(view: StudyView) -> dict[int, ConfigSummary]:
    fastest: dict[int, ConfigSummary] = {}
    for one in summaries(view):
        if one.feasible:
            workers = loader_workers(one.config)
            fastest[workers] = max(fastest.get(workers, one), one, key=lambda it: it.samples_per_second)
    return dict(sorted(fastest.items()))


def _rates(one: ConfigSummary) -> tuple[float | None, ...]:
    """Samples/s in the order of `NAMES`; None where it was not timed."""
    compute = _mean([measurement.compute_samples_per_second for measurement in one.measurements])
    loader = _mean([measurement.loader_samples_per_second for measurement in one.measurements])
    return one.samples_per_second, compute, loader


def _mean(timed: Sequence[float | None]) -> float | None:
    rates = [rate for rate in timed if rate is not None]
    return sum(rates) / len(rates) if rates else None


def _tip(workers: int, one: ConfigSummary, rates: Sequence[float | None]) -> str:
    three = (f"{samples_per_second(rate)} {name}" for rate, name in zip(rates, NAMES, strict=True) if rate is not None)
    return f"{counted(workers, 'worker')}: {', '.join(three)}, {format_share(one.data_wait_share)} waiting"
