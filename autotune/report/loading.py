"""Data loading: what loader and model manage alone and together, and how much of a step is waiting, by workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.core.results import Alone
from autotune.knobs import loader_workers
from autotune.report import drawing
from autotune.report.drawing import Plane, Size
from autotune.report.figure import Absence, Figure, Table
from autotune.report.phrases import samples_per_second, short
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries
from autotune.tuning.advice import LOADER_BOUND
from autotune.units import counted, format_rate, format_share

TITLE = "Data loading"
WORKERS = "loader workers"
SHARES = 84  # pixels below the rates: for the bars with title, numbers and the axis' name


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is shown of one number of workers: three rates of one configuration, in samples/s."""

    workers: int
    summary: ConfigSummary
    compute: float | None
    loader: float | None

    @property
    def rates(self) -> tuple[float | None, float | None, float | None]:
        """Together, computing alone, loading alone."""
        return self.summary.samples_per_second, self.compute, self.loader


def loading(view: StudyView) -> Figure | Absence:
    """Coupled, compute-only and loader-only rates against workers, each number of them by its fastest configuration."""
    if not view.request.facts.tunes_loader:
        return Absence(name="loading", title=TITLE, reason="the batches are synthetic, there is no loader")
    loads = _loads(view)
    if not loads:
        return Absence(name="loading", title=TITLE, reason="no probe was measured")
    names = _names(loads)
    highest = max(rate for load in loads for rate in load.rates if rate is not None)

    def draw(size: Size) -> list[str]:
        across = drawing.ordinal([load.workers for load in loads], "")
        upper = replace(size, height=size.height - SHARES, bottom=24)
        plane = Plane(size=upper, across=across, up=drawing.linear(highest * 1.04, "samples/s", lines=4), names=names)
        parts = plane.axes()
        for arm in reversed(range(len(names))):
            spots = [
                (plane.x(load.workers), plane.y(rate), load) for load in loads if (rate := load.rates[arm]) is not None
            ]
            parts += [f'<g class="arm{arm}">', drawing.polyline([(x, y) for x, y, _ in spots], "line")]
            parts += [drawing.titled(drawing.marker(arm, x, y), _tip(load)) for x, y, load in spots]
            parts.append("</g>")
        return parts + _shares(size, plane, loads)

    bound = format_share(LOADER_BOUND)
    note = f"Each number of workers is shown by its fastest configuration. Waiting above {bound}: bound by its data."
    if len(names) == 1:
        note += " Loader and model were not timed apart in this study."
    return Figure(
        name="loading",
        title=TITLE,
        summary="Samples/s against loader workers. "
        + "; ".join(f"{counted(load.workers, 'worker')}: {_tip(load)}" for load in loads),
        table=Table(
            titles=(WORKERS, "configuration", "together", "model alone", "loader alone", "waiting for data"),
            rows=tuple(_row(load) for load in loads),
        ),
        draw=draw,
        note=note,
    )


def _loads(view: StudyView) -> list[Load]:
    fastest: dict[int, ConfigSummary] = {}
    for one in summaries(view):
        if one.feasible:
            workers = loader_workers(one.config)
            fastest[workers] = max(fastest.get(workers, one), one, key=lambda it: it.samples_per_second)
    return [
        Load(
            workers=workers,
            summary=fastest[workers],
            compute=_alone([one.compute_only for one in fastest[workers].measurements]),
            loader=_alone([one.loader_only for one in fastest[workers].measurements]),
        )
        for workers in sorted(fastest)
    ]


def _alone(timed: Sequence[Alone | None]) -> float | None:
    rates = [one.samples_per_second for one in timed if one is not None]
    return sum(rates) / len(rates) if rates else None


def _names(loads: Sequence[Load]) -> list[str]:
    """What is drawn: the parts as well, if any probe timed them."""
    timed = any(load.compute is not None or load.loader is not None for load in loads)
    return ["together", "model alone", "loader alone"] if timed else ["together"]


def _shares(size: Size, plane: Plane, loads: Sequence[Load]) -> list[str]:
    """Bars below the rates: the share of a step that is waiting, each with its number."""
    top, bottom = size.height - SHARES + 14, size.height - 38
    wide = min(34.0, 0.6 * (plane.right - size.left) / len(loads))
    parts = [drawing.text(0, top, "waiting for data, share of a step", "axis")]
    parts.append(f'<path class="grid" d="M{size.left} {bottom}H{plane.right}"/>')
    last = -1.0
    for load in loads:
        x, share = plane.x(load.workers), load.summary.data_wait_share
        tall = max(1.0, share * (bottom - top - 8))
        kind = "exhausted" if share > LOADER_BOUND else "start"
        bar = drawing.bar(kind, x - wide / 2, bottom - tall, wide, tall)
        parts.append(drawing.titled(bar, f"{counted(load.workers, 'worker')}: {format_share(share)} of a step"))
        half = drawing.width_of(format_share(share)) / 2
        if x - half > last:
            last = x + half + 3
            parts.append(drawing.text(x, bottom + 15, format_share(share), "tick", "middle"))
    return [*parts, drawing.text((size.left + plane.right) / 2, size.height - 6, WORKERS, "axis", "middle")]


def _tip(load: Load) -> str:
    parts = [f"{samples_per_second(load.summary.samples_per_second)} together"]
    for rate, name in ((load.compute, "model alone"), (load.loader, "loader alone")):
        if rate is not None:
            parts.append(f"{format_rate(rate)} {name}")
    return ", ".join([*parts, f"{format_share(load.summary.data_wait_share)} waiting"])


def _row(load: Load) -> tuple[str, ...]:
    rates = [format_rate(load.summary.samples_per_second)]
    rates += ["–" if rate is None else format_rate(rate) for rate in (load.compute, load.loader)]
    return (str(load.workers), short(load.summary.config.values), *rates, format_share(load.summary.data_wait_share))
