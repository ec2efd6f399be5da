"""The verdict: whether a result is feasible, its score, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec.structs import replace

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Config, StudyRequest, Value
from autotune.core.results import Measurement, Outcome, ProbeResult, Trial, Verdict
from autotune.core.run_length import training_share
from autotune.failures.words import ended_early
from autotune.knobs.changes import BATCH_KNOBS
from autotune.objectives import objective_of
from autotune.study.compiling_seconds import CompilingSeconds

# Each trial carries all of these, in this order: Optuna's GP sampler stacks constraint values without their names. The
# order is alphabetical, because that is how the database's index returns them.
CONSTRAINTS = ("memory", "runnable", "stability")
SATISFIED, VIOLATED = -1.0, 1.0
MOST_SKIPS_PER_STEP = 1 / 50  # after calibration; healthy float16 runs skip one in 2000 (docs/notes/precision.md 1)
MOST_LOSS_GROWTH = 3.0  # last over first: beyond it training diverges (docs/notes/precision.md 1)
AVERAGED_TRIAL_LOSSES = 3  # the loss of a single micro-batch is noisy
# Share of the limit if shapes vary: mixed sizes fragment the allocator's memory (docs/notes/memory.md 2).
VARIED_HEADROOM = 0.1
MOST_RETRIES = 0  # of the allocator in the window: each one empties its cache, waits for the device and allocates again
NEAR_TOTAL = 0.9  # of the device's memory: above it a driver may use the host's and not fail (docs/notes/memory.md 7)
CLIFF_RATIO = 2.0  # times the seconds per sample of the next smaller batch, although a larger batch should take fewer

WORDS = {
    Outcome.OOM_DEVICE: "out of memory",
    Outcome.OOM_HOST: "out of memory",
    Outcome.OOM_SHM: "out of shared memory",
    Outcome.TOO_LARGE: "too large for the kernel",
    Outcome.UNSTABLE: "unstable",
    Outcome.INVALID_CONFIG: "not runnable",
    Outcome.TIMEOUT: "hung",
    Outcome.CRASHED: "crashed",
    Outcome.DEVICE_FAULT: "device fault",
    Outcome.COMPILE_FAILED: "compile failed",
    Outcome.USER_ERROR: "error in your code",
    Outcome.ENVIRONMENT: "machine unfit",
}


def word_of(result: ProbeResult) -> str:
    """Return how a probe without a measurement ended, in a few words."""
    return "ended too early" if ended_early(result.failure) else WORDS[result.outcome]


def judge(
    result: ProbeResult, request: StudyRequest, noise_scale: float | None = None, cold_seconds: float = 0.0
) -> Verdict:
    """Return the verdict: the score is its value; memory, stability and runnability are constraints (> 0: violated).

    A planned run compiles once, for `cold_seconds` or as long as this probe did, and trains for the rest.
    """
    objective = objective_of(request.goal)
    constraints = dict.fromkeys(CONSTRAINTS, SATISFIED)
    if result.measurement is None:
        name = "memory" if result.outcome.out_of_memory else "runnable"
        name = "stability" if result.outcome is Outcome.UNSTABLE else name
        constraints[name] = VIOLATED
        message = result.failure.message if result.failure else ""
        failed = notice(Code.PROBE_FAILED, outcome=word_of(result), failure=message)
        return Verdict(value=None, constraints=constraints, reason=failed)
    measurement = result.measurement
    usable = request.memory_limit_bytes - headroom_for(measurement, request)
    constraints["memory"] = math.log(measurement.memory.bytes / usable)
    reason = None if request.goal.stability == "off" else instability(measurement)
    constraints["stability"] = VIOLATED if reason else SATISFIED
    if constraints["memory"] > 0:
        reason = notice(Code.NEEDS_MEMORY, peak_bytes=measurement.memory.bytes, usable_bytes=usable)
    elif (retries := measurement.memory.allocator_retries or 0) > MOST_RETRIES:
        constraints["memory"] = VIOLATED
        reason = notice(Code.MEMORY_THRASHES, retries=retries)
    value = objective.score(result, request.goal, noise_scale)
    share = 1.0
    if value is not None and objective.counts_compiling:
        compiling = max(cold_seconds, measurement.compilation.seconds if measurement.compilation else 0.0)
        share = training_share(
            request.goal.run_length, compiling, measurement.samples_per_second, request.facts.dataset_samples
        )
        value *= share
    if value is None:
        constraints["runnable"] = VIOLATED
        reason = reason or notice(objective.missing)
    return Verdict(value=value, constraints=constraints, reason=reason, training_share=share)


def judge_among(
    trial: Trial, others: Iterable[Trial], request: StudyRequest, noise_scale: float | None = None
) -> Verdict:
    """Return the verdict among other trials: smaller batches among `others` may show that memory was spilled."""
    others = tuple(others)
    verdict = judge(trial.result, request, noise_scale, CompilingSeconds(others).cold(trial.config))
    spilled = spill(trial, others, request) if verdict.feasible else None
    if not spilled:
        return verdict
    return replace(verdict, constraints={**verdict.constraints, "memory": VIOLATED}, reason=spilled)


def spill(trial: Trial, others: Iterable[Trial], request: StudyRequest) -> Notice | None:
    """Return why this probe seems to have used the host's memory in part, without an error; None if it does not.

    Drivers under Windows and WSL do so from 536.40 on; it shows in the time per sample (docs/notes/memory.md 7).
    """
    measured = trial.result.measurement
    total = request.environment.device_bytes
    if measured is None or measured.memory.reserved_bytes is None or measured.memory.bytes < NEAR_TOTAL * total:
        return None
    smaller = [
        (other.config.batch_size, other.result.measurement.samples_per_second)
        for other in others
        if other.result.measurement is not None
        and other.config.batch_size < trial.config.batch_size
        and _all_but_batch(other.config) == _all_but_batch(trial.config)
    ]
    if not smaller:
        return None
    batch, rate = max(smaller)
    factor = rate / measured.samples_per_second
    if factor < CLIFF_RATIO:
        return None
    return notice(Code.MEMORY_SPILLED, factor=factor, batch=batch, used=measured.memory.bytes / total)


def headroom_for(measurement: Measurement, request: StudyRequest) -> int:
    """Return the bytes of the limit to keep free: the user's value, or a default, more if shapes of batches vary."""
    if not measurement.shapes_vary or request.goal.headroom_fraction is not None:
        return request.headroom_bytes
    return max(request.headroom_bytes, int(VARIED_HEADROOM * request.memory_limit_bytes))


def instability(measurement: Measurement) -> Notice | None:
    """Return why the losses of this probe are evidence against its configuration; None if they are not."""
    losses = measurement.losses
    broken = sum(loss is None for loss in losses)
    if broken:
        return notice(Code.UNSTABLE_NOT_FINITE, broken=broken, losses=len(losses))
    steps = measurement.trained_steps - measurement.calibration_skips
    if measurement.skipped_steps > max(1.0, steps * MOST_SKIPS_PER_STEP):
        return notice(Code.UNSTABLE_STEPS_SKIPPED, skipped=measurement.skipped_steps, steps=steps)
    finite = [loss for loss in losses if loss is not None]
    first, last = (
        sum(some) / max(len(some), 1) for some in (finite[:AVERAGED_TRIAL_LOSSES], finite[-AVERAGED_TRIAL_LOSSES:])
    )
    if len(finite) > 2 * AVERAGED_TRIAL_LOSSES and first > 0 and last > MOST_LOSS_GROWTH * first:
        return notice(Code.UNSTABLE_LOSS_GREW, first=first, last=last, losses=len(losses))
    return None


def _all_but_batch(config: Config) -> dict[str, Value]:
    """Return the values in which two configurations must agree, so that only their micro-batches differ."""
    return {name: value for name, value in config.values.items() if name not in BATCH_KNOBS}
