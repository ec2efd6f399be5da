"""The measurement of the gradient noise scale: made once in a study, before its probes, if the objective needs it.

no sample yet? ─► measure at the baseline's micro-batch ─► out of memory? half of it ─► crashed? once more
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune import folder as disk
from autotune.gradients import NoiseScaleResult
from autotune.launch.base import LOG, Launcher
from autotune.records import Config, StudyRequest
from autotune.requests import NoiseScaleRequest
from autotune.results import Outcome
from autotune.tuning.batch_advice import described, informed, known, unknown
from autotune.tuning.prepare import fault
from autotune.tuning.reporter import Reporter

BUDGET_SHARE = 0.1  # of the time budget, for training and measuring
LEAST_SECONDS, MOST_SECONDS = 5.0, 60.0  # however short and long the budget is
TRIES = 2  # of a sample that crashed: it may have been an accident
Sample = tuple[NoiseScaleRequest, NoiseScaleResult]


def measure(
    folder: Path, request: StudyRequest, launcher: Launcher, reporter: Reporter, budget_seconds: float
) -> StudyRequest:
    """The request as `informed` gives it, after a measurement if the objective needs one that the study has not.

    What fails is told and not raised: the baseline, which comes next, will fail alike and show it. Raises
    `EnvironmentUnfit`.
    """
    if request.goal.objective != "time-to-quality":
        return request
    attempts = [
        pair for pair in disk.attempts(folder, NoiseScaleRequest.kind()) if pair[1].outcome is not Outcome.ENVIRONMENT
    ]
    seconds = min(MOST_SECONDS, max(LEAST_SECONDS, BUDGET_SHARE * budget_seconds))
    while (asked := _next(attempts, request, seconds)) is not None:
        reporter.note(
            f"Measuring the gradient noise scale: {asked.least_steps} to {asked.most_steps} steps of training, then "
            f"the gradients of {asked.micro_batches} micro-batches of {asked.config.batch_size}."
        )
        _, place = disk.new_attempt(folder, NoiseScaleRequest)
        result = launcher.run(asked, place)
        if result.outcome is Outcome.ENVIRONMENT:
            assert result.failure is not None, "only OK has none"
            raise fault(result.outcome, result.failure, place / LOG)
        attempts.append((asked, result))
    noise = known(folder, request)
    if noise is None:
        reporter.note(f"{unknown(attempts[-1][1])} Until it is known every sample counts alike.")
    else:
        reporter.note(f"{described(noise)}.")
    return informed(folder, request)


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
