"""What a study's gradient noise scale says of global batches: for the objective, and in words beside the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from autotune import folder as disk
from autotune.gradients import NoiseScale, NoiseScaleResult
from autotune.noise_scale import GROWTH, batch_range, efficiency, estimate, half_batch
from autotune.records import StudyRequest
from autotune.requests import NoiseScaleRequest
from autotune.results import Trial, Verdict
from autotune.tuning.recommendation import BatchAdvice, Recommendation

WRONG_AT_START = 30  # times, by which a noise scale measured at initialisation was off (docs/notes/noise.md 3)


def informed(folder: Path, request: StudyRequest) -> StudyRequest:
    """The request, its goal knowing the noise scale if the objective counts with it and the study has measured it."""
    noise = known(folder, request)
    return request if noise is None else replace(request, goal=replace(request.goal, noise_scale=noise.phi))


def known(folder: Path, request: StudyRequest) -> NoiseScale | None:
    """What the study's last sample of gradients says; None without one, and for other objectives."""
    if request.goal.objective != "time-to-quality":
        return None
    samples = [
        result.sample for _, result in disk.attempts(folder, NoiseScaleRequest.kind()) if result.sample is not None
    ]
    return estimate(samples[-1]) if samples else None


def advised(
    recommendation: Recommendation, folder: Path, request: StudyRequest, judged: Sequence[tuple[Trial, Verdict]]
) -> Recommendation:
    """The recommendation, with all that the noise scale says of its global batch; unchanged for other objectives."""
    if request.goal.objective != "time-to-quality":
        return recommendation
    noise = known(folder, request)
    if noise is None:
        warning = unknown(disk.attempts(folder, NoiseScaleRequest.kind())[-1][1])
        told = f"{warning} The recommendation is the one of the most samples/s, and says nothing of large batches."
        return replace(recommendation, warnings=(told, *recommendation.warnings))
    half = _half_batch(recommendation, judged)
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


def _half_batch(recommendation: Recommendation, judged: Sequence[tuple[Trial, Verdict]]) -> float | None:
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
