"""What the charts draw: per arm, the best that was seen at each micro-batch, and where memory ran out."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.knobs import KNOBS
from autotune.records import Config, Value
from autotune.report.phrases import shown
from autotune.results import Trial
from autotune.tuning.view import StudyView

MOST_ARMS = 6  # as many as there are colours that tell apart; the fastest stay


@dataclass(frozen=True, kw_only=True)
class Point:
    """One probe on a curve."""

    batch: int
    samples_per_second: float
    peak_bytes: int
    number: int


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One arm: what all its probes share is the knobs that have no order, as precision and layout."""

    label: str
    points: tuple[Point, ...]  # fastest probe at each micro-batch, by micro-batch
    heaviest: tuple[Point, ...]  # largest peak at each micro-batch
    exhausted_batch: int | None  # smallest micro-batch above all points at which memory ran out


def curves(view: StudyView) -> tuple[Curve, ...]:
    """The arms, fastest first; knobs that never varied are not named."""
    arms: dict[tuple[Value, ...], list[Trial]] = {}
    for trial in view.trials:
        arms.setdefault(_arm(trial.config), []).append(trial)
    named = [index for index in range(len(_unordered())) if len({arm[index] for arm in arms}) > 1] or [0]
    drawn = [_curve(" ".join(_shown(arm, index) for index in named), trials) for arm, trials in arms.items()]
    drawn = [curve for curve in drawn if curve.points or curve.exhausted_batch is not None]
    return tuple(sorted(drawn, key=_top, reverse=True)[:MOST_ARMS])


def _unordered() -> list[str]:
    return [knob.name for knob in KNOBS if not knob.ordered]


def _arm(config: Config) -> tuple[Value, ...]:
    return tuple(config.values.get(name) for name in _unordered())


def _shown(arm: tuple[Value, ...], index: int) -> str:
    knob = [knob for knob in KNOBS if not knob.ordered][index]
    return shown(knob, {knob.name: arm[index]})


def _top(curve: Curve) -> float:
    return max((point.samples_per_second for point in curve.points), default=0.0)


def _curve(label: str, trials: list[Trial]) -> Curve:
    fastest: dict[int, Point] = {}
    heaviest: dict[int, Point] = {}
    for trial in trials:
        measured, batch = trial.result.measurement, trial.config.batch_size
        if measured is None or batch < 1:
            continue
        point = Point(
            batch=batch,
            samples_per_second=measured.samples_per_second,
            peak_bytes=measured.memory.bytes,
            number=trial.number,
        )
        if batch not in fastest or point.samples_per_second > fastest[batch].samples_per_second:
            fastest[batch] = point
        if batch not in heaviest or point.peak_bytes > heaviest[batch].peak_bytes:
            heaviest[batch] = point
    largest = max(fastest, default=0)
    exhausted = [
        t.config.batch_size for t in trials if t.result.outcome.out_of_memory and t.config.batch_size > largest
    ]
    return Curve(
        label=label,
        points=tuple(fastest[batch] for batch in sorted(fastest)),
        heaviest=tuple(heaviest[batch] for batch in sorted(heaviest)),
        exhausted_batch=min(exhausted, default=None),
    )
