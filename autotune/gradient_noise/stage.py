"""The gradient noise scale in a search: measured once, before the probes, if the objective needs it; and its advice.

no sample yet? ─► measure at the baseline's micro-batch ─► out of memory? half of it ─► crashed? once more
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from autotune.context.search_context import SearchContext
from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Config, StudyRequest
from autotune.core.requests import of_study
from autotune.gradient_noise.estimate import MOST_NOISE_GROWTH, NOISE_GROWTH, batch_range, efficiency, half_batch
from autotune.gradient_noise.records import NoiseScale, NoiseScaleRequest, NoiseScaleResult
from autotune.objectives import objective_of
from autotune.study.history import History, NoiseScaleCheck
from autotune.study.recommendation import BatchAdvice, Recommendation
from autotune.study.valid_probes import Judged

LEAST_SAMPLE_SECONDS, MOST_SAMPLE_SECONDS = 5.0, 60.0  # for the shortest and the longest time budget
NOISE_TRIES = 2  # of a sample that crashed, perhaps by accident
WRONG_AT_START = 30  # factor by which a noise scale measured at initialisation was wrong (docs/notes/noise.md 3)


def measure_gradient_noise(context: SearchContext) -> None:
    """Measure the gradient noise scale if the objective needs it and the study has none.

    A failure is reported and not raised: the baseline, which comes next, will fail in the same way and show it. Raises
    `EnvironmentUnfit`.
    """
    history, request = context.history, context.request
    if not context.objective.uses_noise_scale:
        return
    seconds = min(MOST_SAMPLE_SECONDS, max(LEAST_SAMPLE_SECONDS, context.budget.gradient_sample_seconds))
    while (asked := _next(history.gradient_samples, request, seconds)) is not None:
        context.reporter.note(
            f"Measuring the gradient noise scale: {asked.least_steps} to {asked.most_steps} steps of training, then "
            f"the gradients of {asked.micro_batches} micro-batches of {asked.config.batch_size}."
        )
        history.add_measured(asked, context.run(asked))
    if history.noise_scale_estimate is None:
        context.reporter.note(
            f"{no_noise_scale(history.gradient_samples[-1][1]).text} Until it is known, all batch sizes count as "
            f"equally efficient."
        )
    else:
        context.reporter.detail(f"{describe_noise_scale(history.noise_scale_estimate).text}.")


def _next(attempts: Sequence[NoiseScaleCheck], request: StudyRequest, seconds: float) -> NoiseScaleRequest | None:
    """Return the next measurement; None if there is one already, or if none is possible."""
    config = Config(values={**request.baseline.values, "gradient_accumulation_steps": 1})
    if attempts:
        asked, result = attempts[-1]
        crashes = sum(other.outcome.retried for _, other in attempts)
        if result.outcome.out_of_memory and asked.config.batch_size > 1:
            config = Config(values={**asked.config.values, "batch_size": asked.config.batch_size // 2})
        elif result.outcome.retried and crashes < NOISE_TRIES:
            config = asked.config
        else:
            return None
    return NoiseScaleRequest(
        **of_study(request) | {"ranks": 1},  # gradients of micro-batches, which no ranks have averaged
        config=config,
        seed=request.seed,
        max_seconds=seconds,
    )


def with_batch_advice(recommendation: Recommendation, history: History) -> Recommendation:
    """Return the recommendation with advice on its global batch by the noise scale; unchanged if not its objective."""
    if not objective_of(history.request.goal).uses_noise_scale:
        return recommendation
    noise_scale = history.noise_scale_estimate
    if noise_scale is None:
        warning = notice(Code.NOISE_SCALE_UNKNOWN, why=no_noise_scale(history.gradient_samples[-1][1]))
        return replace(recommendation, warnings=(warning, *recommendation.warnings))
    half = _half_batch(recommendation, history.judged)
    between = batch_range(noise_scale, half) if half is not None else None
    advice = BatchAdvice(noise=noise_scale, half_batch=half, low=between and between[0], high=between and between[1])
    warnings = recommendation.warnings
    if not noise_scale.has_fallen:
        warnings = (notice(Code.NOISE_SCALE_EARLY, steps=noise_scale.steps, factor=WRONG_AT_START), *warnings)
    reasons = (*describe_advice(advice, recommendation.global_batch_size), *recommendation.reasons)
    return replace(recommendation, batch_advice=advice, reasons=reasons, warnings=warnings)


def describe_noise_scale(noise_scale: NoiseScale) -> Notice:
    """Return the noise scale, and what it says about batches, with intervals of 90 %."""
    if noise_scale.phi is None or noise_scale.high is None:
        return notice(Code.NOISE_SCALE_AT_LEAST, steps=noise_scale.steps, low=noise_scale.low)
    return notice(
        Code.NOISE_SCALE, steps=noise_scale.steps, phi=noise_scale.phi, low=noise_scale.low, high=noise_scale.high
    )


def describe_advice(advice: BatchAdvice, batch: int) -> tuple[Notice, ...]:
    """Return what is known about a global batch of `batch` samples, and about the best one, with intervals of 90 %."""
    noise_scale = advice.noise
    if noise_scale.phi is None or noise_scale.high is None:
        return (describe_noise_scale(noise_scale),)
    share, low, high = (efficiency(batch, phi) for phi in (noise_scale.phi, noise_scale.low, noise_scale.high))
    found = (
        describe_noise_scale(noise_scale),
        notice(Code.BATCH_EFFICIENCY, batch=batch, efficiency=share, low=low, high=high),
        notice(Code.NOISE_SCALE_GROWS, least=NOISE_GROWTH, most=MOST_NOISE_GROWTH),
    )
    if advice.low is None or advice.high is None:
        return found
    middle = math.sqrt(advice.low * advice.high)
    return (*found, notice(Code.BEST_GLOBAL_BATCH, low=advice.low, high=advice.high, middle=middle))


def no_noise_scale(result: NoiseScaleResult) -> Notice:
    """Return why there is no noise scale."""
    if result.why:
        return notice(Code.NOISE_SCALE_FAILED, error=result.why)
    return notice(Code.GRADIENTS_TELL_NOTHING)


def _half_batch(recommendation: Recommendation, judged: Sequence[Judged]) -> float | None:
    """Return `half_batch` of the probes that differ from the recommendation in the micro-batch only."""
    others = {name: value for name, value in recommendation.params.items() if name != "batch_size"}
    batches, seconds = [], []
    for trial, verdict in judged:
        measured = trial.result.measurement
        if verdict.feasible and measured is not None and others.items() <= trial.config.values.items():
            batches.append(measured.samples_per_step)
            seconds.append(measured.samples_per_step / measured.samples_per_second)
    return half_batch(batches, seconds)
