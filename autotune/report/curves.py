"""What the charts against the micro-batch draw: per arm, the best at each batch, and where memory ran out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.records import Config, Value
from autotune.core.results import Trial
from autotune.knobs import KNOBS, completed
from autotune.knobs.base import TACIT, Knob, MemoryEffect
from autotune.report.phrases import shown
from autotune.sampler.prediction import Expectation
from autotune.study import layout as disk
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries

MOST_ARMS = 6  # as many as there are colours that can be distinguished; the fastest stay


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One arm: what all its configurations share is the knobs without order that change memory: precision, layout."""

    label: str
    values: tuple[Value, ...]  # of those knobs
    fastest: tuple[
        ConfigSummary, ...
    ]  # at each micro-batch, by micro-batch; one that may be used before one that may not
    heaviest: tuple[ConfigSummary, ...]  # largest peak at each micro-batch
    exhausted_batch: int | None  # smallest micro-batch above all that were measured at which memory ran out


def curves(view: StudyView) -> tuple[Curve, ...]:
    """The arms, fastest first; knobs that never varied are not named."""
    arms: dict[tuple[Value, ...], tuple[list[ConfigSummary], list[Trial]]] = {}
    for trial in view.trials:
        arms.setdefault(_arm(trial.config), ([], []))[1].append(trial)
    for summary in summaries(view):
        arms[_arm(summary.config)][0].append(summary)
    named = [index for index in range(len(_naming())) if len({arm[index] for arm in arms}) > 1] or [0]
    drawn = [_curve(_label(arm, named), arm, *probes) for arm, probes in arms.items()]
    drawn = [curve for curve in drawn if curve.fastest or curve.exhausted_batch is not None]
    return tuple(sorted(drawn, key=_top, reverse=True)[:MOST_ARMS])


def _naming() -> list[Knob]:
    return [knob for knob in KNOBS if not knob.ordered and knob.memory is MemoryEffect.CHANGES]


def fitted(view: StudyView, curve: Curve) -> tuple[Expectation, ...]:
    """What the search had learned of this arm when it ended, by micro-batch, as far as its probes reached."""
    fit = disk.read_fit(view.folder)
    reached = [one.config.batch_size for one in curve.fastest]
    if fit is None or not reached:
        return ()
    ours = [point for point in fit.points if _arm(completed(Config(values=point.values))) == curve.values]
    within = [point for point in ours if min(reached) <= int(point.values["batch_size"] or 0) <= max(reached)]
    return tuple(sorted(within, key=lambda point: int(point.values["batch_size"] or 0)))


def _arm(config: Config) -> tuple[Value, ...]:
    return tuple(config.values.get(knob.name, knob.default) for knob in _naming())


def _label(arm: tuple[Value, ...], named: Sequence[int]) -> str:
    """What is not done needs no word, unless there is no other."""
    knobs = [_naming()[index] for index in named]
    texts = [shown(knob, {knob.name: arm[index]}) for knob, index in zip(knobs, named, strict=True)]
    return " ".join(text for text in texts if text not in TACIT) or f"{texts[0]} {knobs[0].label}"


def _top(curve: Curve) -> float:
    return max((one.samples_per_second for one in curve.fastest), default=0.0)


def _curve(label: str, values: tuple[Value, ...], measured: Sequence[ConfigSummary], trials: Sequence[Trial]) -> Curve:
    fastest: dict[int, ConfigSummary] = {}
    heaviest: dict[int, ConfigSummary] = {}
    for one in measured:
        batch = one.config.batch_size
        if batch < 1:
            continue
        fastest[batch] = max(fastest.get(batch, one), one, key=lambda it: (it.feasible, it.samples_per_second))
        heaviest[batch] = max(heaviest.get(batch, one), one, key=lambda it: it.peak_bytes)
    largest = max(fastest, default=0)
    exhausted = [
        t.config.batch_size for t in trials if t.result.outcome.out_of_memory and t.config.batch_size > largest
    ]
    return Curve(
        label=label,
        values=values,
        fastest=tuple(fastest[batch] for batch in sorted(fastest)),
        heaviest=tuple(heaviest[batch] for batch in sorted(heaviest)),
        exhausted_batch=min(exhausted, default=None),
    )
