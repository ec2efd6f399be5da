"""How far the numbers can be trusted: spread of repeats, and what else the machine was doing meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autotune.records import Config
from autotune.report import drawing
from autotune.report.drawing import Plane, Size
from autotune.report.figure import Absence, Figure, Table
from autotune.report.phrases import short
from autotune.results import Trial
from autotune.tuning.view import StudyView
from autotune.units import format_bytes, format_rate, format_share

REPEATS, MACHINE = "Repeats of one configuration", "The machine meanwhile"
MOST_MARKERS = 30  # of a series; more would cover its line
ROW = 44  # pixels of a configuration with its name
MOST_ROWS = 7  # configurations with the most repeats
SERIES = ("baseline's speed, first = 100%", "GPU utilization", "waiting for a core", "SM clock, highest = 100%")


def repeats(view: StudyView) -> Figure | Absence:
    """Each repeat as a point: by how much it differs from the mean of its configuration."""
    probes: dict[Config, list[Trial]] = {}
    for trial in view.trials:
        if trial.result.measurement is not None:
            probes.setdefault(trial.config, []).append(trial)
    often = sorted((trials for trials in probes.values() if len(trials) > 1), key=len, reverse=True)[:MOST_ROWS]
    if not often:
        return Absence(name="repeats", title=REPEATS, reason="nothing was measured twice")
    rows = [(short(trials[0].config.values), trials, _mean(trials)) for trials in often]
    widest = max(abs(_rate(trial) / mean - 1) for _, trials, mean in rows for trial in trials)

    def draw(size: Size) -> list[str]:
        frame = Size(width=size.width, height=size.height, right=20, left=16, top=8)
        edge = max(1.0, 100 * widest)
        across = drawing.linear(edge, "difference from the mean of its repeats, %", _signed, low=-edge, lines=6)
        plane = Plane(size=frame, across=across, up=drawing.NO_AXIS)
        each = (plane.bottom - plane.top) / len(rows)
        parts = plane.axes()
        for index, (name, trials, mean) in enumerate(rows):
            y = plane.top + (index + 0.5) * each + 7
            parts.append(f'<path class="grid" d="M{plane.x(0):.1f} {y - 6:.1f}v12"/>')
            xs = [plane.x(100 * (_rate(trial) / mean - 1)) for trial in trials]
            told = name if size.is_narrow else f"{name} · {len(trials)} probes, mean {format_rate(mean)} samples/s"
            parts.append(drawing.text(4, y - 11, told, "note"))
            parts.append(f'<g class="arm0"><path class="interval" d="M{min(xs):.1f} {y:.1f}H{max(xs):.1f}"/>')
            for x, trial in zip(xs, trials, strict=True):
                title = f"probe {trial.number} ({trial.purpose}): {format_rate(_rate(trial))} samples/s"
                parts.append(drawing.titled(drawing.marker(0 if trial.purpose != "search" else 3, x, y), title))
            parts.append("</g>")
        return parts

    told = tuple(
        (name, str(len(trials)), ", ".join(format_rate(_rate(trial)) for trial in trials), _spread(trials))
        for name, trials, _ in rows
    )
    return Figure(
        name="repeats",
        title=REPEATS,
        summary="; ".join(f"{name}: {count} probes within {spread}" for name, count, _, spread in told),
        table=Table(titles=("configuration", "probes", "samples/s, in their order", "range"), rows=told),
        draw=draw,
        height=len(rows) * ROW + 54,
        note="Diamonds: probes of the search, which the run-off does not count, for luck chose them.",
    )


def machine(view: StudyView) -> Figure | Absence:
    """What changed over the study beside the configuration, as shares, probe by probe."""
    first = next((_rate(t) for t in view.trials if t.config == view.request.baseline and t.result.measurement), None)

    def baseline(trial: Trial) -> float | None:
        is_measured = trial.config == view.request.baseline and trial.result.measurement is not None
        return _rate(trial) / first if is_measured and first else None

    fastest = max((found for trial in view.trials if (found := _megahertz(trial)) is not None), default=0.0)

    def clock(trial: Trial) -> float | None:
        megahertz = _megahertz(trial)
        return megahertz / fastest if megahertz is not None and fastest else None

    series = (baseline, _utilization, _waiting, clock)
    told = [(arm, name, _series(view.trials, series[arm])) for arm, name in enumerate(SERIES)]
    drawn = [(arm, name, points) for arm, name, points in told if len(points) > 1]
    if not drawn:
        return Absence(
            name="machine", title=MACHINE, reason="neither the baseline was repeated nor the machine watched"
        )
    highest = 100 * max(share for _, _, points in drawn for _, share in points)
    last = max(trial.number for trial in view.trials)
    names = [name for _, name, _ in drawn]

    def draw(size: Size) -> list[str]:
        frame = Size(width=size.width, height=size.height, right=20, left=size.left)
        lines = len(drawing.legend_lines(names, size))
        across = drawing.linear(last, "probe")
        plane = Plane(size=frame, across=across, up=drawing.linear(max(100.0, highest), "%"), legend=lines)
        parts = plane.axes()
        for arm, (_, name, points) in enumerate(drawn):
            spots = [(plane.x(number), plane.y(100 * share)) for number, share in points]
            parts += [f'<g class="arm{arm}">', drawing.polyline(spots, "line")]
            for (x, y), (number, share) in zip(spots, points, strict=True) if len(points) <= MOST_MARKERS else ():
                parts.append(drawing.titled(drawing.marker(arm, x, y), f"probe {number}: {name} {format_share(share)}"))
            parts.append("</g>")
        return [*parts, *drawing.legend(names, size)]

    rows = tuple(
        (str(trial.number), *disturbance(trial), *_gpu(trial)) for trial in view.trials if _is_told(trial, baseline)
    )
    return Figure(
        name="machine",
        title=MACHINE,
        summary="; ".join(
            f"{name} from {format_share(min(s for _, s in points))} to {format_share(max(s for _, s in points))}"
            for _, name, points in drawn
        ),
        table=Table(
            titles=(
                "probe",
                "waiting for a core",
                "others' cores",
                "GPU use",
                "GPU memory",
                "power",
                "SM clock",
                "slowed by",
            ),
            rows=rows,
        ),
        draw=draw,
        note="On a quiet machine the baseline stays where it began, and nothing waits for a core.",
    )


def disturbance(trial: Trial) -> tuple[str, str]:
    """Share of the window spent waiting for a core, and cores that others kept busy."""
    measured = trial.result.measurement
    found = None if measured is None else measured.contamination
    waited = None if found is None else found.run_queue_wait_share
    foreign = None if found is None else found.foreign_cores
    return ("–" if waited is None else format_share(waited), "–" if foreign is None else f"{foreign:.1f}")


def _gpu(trial: Trial) -> tuple[str, str, str, str, str]:
    gpu = trial.result.gpu
    if gpu is None:
        return ("–",) * 5
    clocks = "–" if gpu.sm_clock_mhz is None else "–".join(str(clock) for clock in dict.fromkeys(gpu.sm_clock_mhz))
    others = [f"{len(gpu.foreign_processes)} other processes"] if gpu.foreign_processes else []
    return (
        "–" if gpu.utilization is None else format_share(gpu.utilization),
        format_bytes(gpu.used_bytes),
        "–" if gpu.power_watts is None else f"{gpu.power_watts:.0f} W",
        "–" if clocks == "–" else f"{clocks} MHz",
        ", ".join([*gpu.throttle_reasons, *others]) or "nothing",
    )


def _signed(percent: float) -> str:
    return f"{percent:+.10g}" if percent else "0"


def _is_told(trial: Trial, baseline: Callable[[Trial], float | None]) -> bool:
    return any(value(trial) is not None for value in (baseline, _utilization, _waiting))


def _utilization(trial: Trial) -> float | None:
    return None if trial.result.gpu is None else trial.result.gpu.utilization


def _megahertz(trial: Trial) -> float | None:
    """The SM clock of the window: the middle of its lowest and highest reading."""
    gpu = trial.result.gpu
    return None if gpu is None or gpu.sm_clock_mhz is None else sum(gpu.sm_clock_mhz) / 2


def _waiting(trial: Trial) -> float | None:
    measured = trial.result.measurement
    return None if measured is None or measured.contamination is None else measured.contamination.run_queue_wait_share


def _series(trials: Sequence[Trial], value: Callable[[Trial], float | None]) -> list[tuple[int, float]]:
    return [(trial.number, found) for trial in trials if (found := value(trial)) is not None]


def _rate(trial: Trial) -> float:
    assert trial.result.measurement is not None, "only measured probes are asked for"
    return trial.result.measurement.samples_per_second


def _mean(trials: Sequence[Trial]) -> float:
    return math.exp(sum(math.log(_rate(trial)) for trial in trials) / len(trials))


def _spread(trials: Sequence[Trial]) -> str:
    rates = [_rate(trial) for trial in trials]
    return format_share(max(rates) / min(rates) - 1)
