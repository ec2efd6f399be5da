"""The gradient noise scale: measured once in a study, before its probes, if the objective needs it; and its advice.

no sample yet? ─► measure at the baseline's micro-batch ─► out of memory? half of it ─► crashed? once more
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from autotune.core.records import Config, StudyRequest
from autotune.core.requests import NoiseScaleRequest
from autotune.core.results import Outcome
from autotune.gradient_noise.estimate import GROWTH, batch_range, efficiency, half_batch
from autotune.gradient_noise.records import NoiseScale, NoiseScaleResult
from autotune.launch.base import LOG
from autotune.objectives import objective_of
from autotune.study import layout as disk
from autotune.study.history import History, Sample
from autotune.study.interference import Judged
from autotune.study.recommendation import BatchAdvice, Recommendation
from autotune.tuning.context import SearchContext
from autotune.tuning.prepare import fault

BUDGET_SHARE = 0.1  # of the time budget, for training and measuring
LEAST_SECONDS, MOST_SECONDS = 5.0, 60.0  # however short and long the budget is
TRIES = 2  # of a sample that crashed: it may have been an accident
WRONG_AT_START = 30  # times, by which a noise scale measured at initialisation was off (docs/notes/noise.md 3)


def measure_gradient_noise(context: SearchContext) -> None:
    """Measure the gradient noise scale if the objective needs it and the study has not got it.

    What fails is reported and not raised: the baseline, which comes next, will fail alike and show it. Raises
    `EnvironmentUnfit`.
    """
    history, request = context.history, context.request
    if not context.objective.uses_noise_scale:
        return
    seconds = min(MOST_SECONDS, max(LEAST_SECONDS, BUDGET_SHARE * context.settings.time_budget_seconds))
    while (asked := _next(history.samples, request, seconds)) is not None:
        context.reporter.note(
            f"Measuring the gradient noise scale: {asked.least_steps} to {asked.most_steps} steps of training, then "
            f"the gradients of {asked.micro_batches} micro-batches of {asked.config.batch_size}."
        )
        _, place = disk.new_attempt(context.folder, NoiseScaleRequest)
        result = context.launcher.run(asked, place)
        if result.outcome is Outcome.ENVIRONMENT:
            assert result.failure is not None, "only OK has none"
            raise fault(result.outcome, result.failure, place / LOG)
        history.add_sample(asked, result)
    if history.noise is None:
        context.reporter.note(f"{unknown(history.samples[-1][1])} Until it is known every sample counts alike.")
    else:
        context.reporter.note(f"{described(history.noise)}.")


def _next(attempts: Sequence[Sample], request: StudyRequest, seconds: float) -> NoiseScaleRequest | None:
    """The measurement that is still to be made; None: there is one, or none can be had."""
    config = Config(values={**request.baseline.values, "gradient_accumulation_steps": 1})
    if attempts:
        asked, result = attempts[-1]
        crashes = sum(other.outcome.retried for _, other in attempts)
        if result.outcome.out_of_memory and asked.config.batch_size > 1:
            config = Config(values={**asked.config.values, "batch_size": asked.config.batch_size // 2})
        elif result.outcome.retried and crashes < TRIES:
            config = asked.config
        else:
            return None
    return NoiseScaleRequest(
        target=request.target,
        config=config,
        device=request.environment.device,
        seed=request.seed,
        max_seconds=seconds,
        memory_limit_bytes=request.enforced_limit_bytes,
    )


def with_batch_advice(recommendation: Recommendation, history: History) -> Recommendation:
    """Return the recommendation with what the noise scale says of its global batch; unchanged for other objectives."""
    if not objective_of(history.request.goal).uses_noise_scale:
        return recommendation
    noise = history.noise
    if noise is None:
        warning = unknown(history.samples[-1][1])
        told = f"{warning} The recommendation is the one of the most samples/s, and says nothing of large batches."
        return replace(recommendation, warnings=(told, *recommendation.warnings))
    half = _half_batch(recommendation, history.judged)
    between = batch_range(noise, half) if half is not None else None
    advice = BatchAdvice(noise=noise, half_batch=half, low=between and between[0], high=between and between[1])
    warnings = recommendation.warnings
    if not noise.has_fallen:
        early = (
            f"The loss had not fallen by 10% after the {noise.steps} steps before the noise scale was measured. At "
            f"the start of training it can be wrong by {WRONG_AT_START} times. Train longer with each batch before "
            f"you believe it, or search with --objective throughput."
        )
        warnings = (early, *warnings)
    reasons = (*sentences(advice, recommendation.global_batch_size), *recommendation.reasons)
    return replace(recommendation, batch_advice=advice, reasons=reasons, warnings=warnings)


def described(noise: NoiseScale) -> str:
    """`noise scale after 30 steps 26 [18, 39] samples: batches up to about 26 waste less than 50% of the samples`."""
    measured = f"noise scale after {noise.steps} steps"
    if noise.phi is None:
        return f"{measured} at least {_two(noise.low)} samples: no evidence that the largest batch wastes samples"
    return (
        f"{measured} {_two(noise.phi)} [{_two(noise.low)}, {_two(noise.high or math.inf)}] samples: batches up to "
        f"about {_two(noise.phi)} waste less than 50% of the samples"
    )


def sentences(advice: BatchAdvice, batch: int) -> tuple[str, ...]:
    """What is said of a global batch of so many samples beside the answer; intervals are of 90 %."""
    noise = advice.noise
    if noise.phi is None or noise.high is None:
        return (described(noise),)
    share, low, high = (efficiency(batch, phi) for phi in (noise.phi, noise.low, noise.high))
    told = (
        f"{described(noise)}; estimated efficiency at a global batch of {batch}: {share:.0%} [{low:.0%}, {high:.0%}]",
        f"the noise scale normally grows {GROWTH:.0f} to 10 times during training, so late training tolerates larger "
        f"batches",
    )
    if advice.low is None or advice.high is None:
        return told
    middle = math.sqrt(advice.low * advice.high)
    return (
        *told,
        f"advice: for time to a given training loss a global batch of {_two(advice.low)} to {_two(advice.high)}, in "
        f"the middle {_two(middle)}; how well the model generalises is not measured",
    )


def unknown(result: NoiseScaleResult) -> str:
    """Why there is no noise scale, in a sentence."""
    why = result.failure.message if result.failure else "the gradients of all micro-batches are alike, or too few"
    return f"The gradient noise scale could not be measured: {why.rstrip('.')}."


def _half_batch(recommendation: Recommendation, judged: Sequence[Judged]) -> float | None:
    """From all measured batches of the recommended arm, accumulation included: there a step is linear in the batch."""
    arm = {name: value for name, value in recommendation.params.items() if name != "batch_size"}
    batches, seconds = [], []
    for trial, verdict in judged:
        measured = trial.result.measurement
        if verdict.feasible and measured is not None and arm.items() <= trial.config.values.items():
            batches.append(sum(measured.samples) / measured.steps)
            seconds.append(sum(measured.step_seconds) / measured.steps)
    return half_batch(batches, seconds)


def _two(samples: float) -> str:
    """Two digits: more than any interval supports."""
    return f"{float(f'{samples:.2g}'):,.3g}" if samples < 1000 else f"{float(f'{samples:.2g}'):,.0f}"
