"""The notes of an answer on torch.compile: its cost at the start, when that pays, and whether it took effect."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from autotune.core.codes import Code
from autotune.core.compilation import Compilation
from autotune.core.notices import Notice, notice
from autotune.core.records import Config, Value
from autotune.core.results import Trial
from autotune.core.run_length import break_even_seconds, training_share
from autotune.knobs import KNOBS
from autotune.study.history import History
from autotune.study.recommendation import Recommendation


def with_compile_advice(recommendation: Recommendation, history: History) -> Recommendation:
    """Return the recommendation with notes on what its probes compiled; unchanged if nothing was compiled."""
    config = Config(values=recommendation.params)
    seen = [one for trial, _ in history.judged if trial.config == config and (one := compilation_of(trial))]
    if not seen:
        return recommendation
    costs = tuple(_costs(recommendation, seen, history)) if asked(config) else ()
    return replace(
        recommendation,
        reasons=(*recommendation.reasons, *costs),
        warnings=(*recommendation.warnings, *_doubts(config, seen)),
    )


def asked(config: Config) -> Value:
    """Return the value by which `config` asks for torch.compile; None: it does not."""
    values = (config.values.get(knob.name) for knob in KNOBS if knob.compiles)
    return next((value for value in values if value is not None), None)


def compilation_of(trial: Trial) -> Compilation | None:
    """Return what a probe compiled; None: it compiled nothing and was not asked to."""
    return trial.result.measurement.compilation if trial.result.measurement else None


def doubts(trial: Trial) -> str:
    """Return a sentence about a doubt in what a probe compiled; empty: no doubt."""
    seen = compilation_of(trial)
    return "" if seen is None else " ".join(one.text for one in _doubts(trial.config, [seen]))


def _doubts(config: Config, seen: list[Compilation]) -> Iterator[Notice]:
    mode = asked(config)
    if mode is not None and not any(one.graphs for one in seen):
        yield notice(Code.NOTHING_COMPILED, mode=mode)
    if inside := [one for one in seen if one.frames_in_window]:
        worst = max(inside, key=lambda one: one.seconds_in_window)
        yield notice(
            Code.COMPILED_IN_WINDOW, frames=worst.frames_in_window, seconds=worst.seconds_in_window,
            probes=len(inside), of=len(seen),
        )  # fmt: skip


def _costs(recommendation: Recommendation, seen: list[Compilation], history: History) -> Iterator[Notice]:
    cold, warm = max(one.seconds for one in seen), [one.seconds for one in seen if not one.is_cold]
    if not any(one.graphs for one in seen):
        return
    rate, goal = recommendation.samples_per_second, history.request.goal
    plain = [one.samples_per_second for one in recommendation.confirmations if asked(one.config) is None]
    pays = break_even_seconds(cold, rate / max(plain)) if plain else None
    share = training_share(goal.run_length, cold, rate, history.request.facts.dataset_samples)
    yield notice(
        Code.COMPILING, cold_seconds=cold, warm_seconds=min(warm, default=None), pays_seconds=pays,
        run_length=goal.run_length, spent_share=1 - share if goal.run_length else None,
    )  # fmt: skip
    if breaks := max(one.graph_breaks for one in seen):
        yield notice(Code.GRAPH_BREAKS, breaks=breaks, graphs=max(one.graphs for one in seen))
