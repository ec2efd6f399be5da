"""The verdict: is a result feasible, what is it worth, and why."""

from __future__ import annotations

import math

from autotune.records import StudyRequest
from autotune.results import Measurement, Outcome, ProbeResult, Verdict
from autotune.units import format_bytes

# Every trial carries all of these, in this order: Optuna's GP sampler stacks constraint values without their names. The
# order is the alphabet's, because that is what comes back from the database's index.
CONSTRAINTS = ("memory", "runnable", "stability")
SATISFIED, VIOLATED = -1.0, 1.0
MOST_SKIPS_PER_STEP = 1 / 50  # after calibration; healthy float16 runs skip about one step in 2000 (note F)
MOST_LOSS_GROWTH = 3.0  # last against first: beyond it training has left the rails (note F)
AVERAGED_LOSSES = 3  # a single micro-batch's loss is noise

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


def judge(result: ProbeResult, request: StudyRequest) -> Verdict:
    """Throughput in samples/s is the value; memory, stability and runnability are constraints (> 0: violated)."""
    constraints = dict.fromkeys(CONSTRAINTS, SATISFIED)
    if result.measurement is None:
        name = "memory" if result.outcome.out_of_memory else "runnable"
        name = "stability" if result.outcome is Outcome.UNSTABLE else name
        constraints[name] = VIOLATED
        message = result.failure.message if result.failure else ""
        return Verdict(value=None, constraints=constraints, reason=f"{WORDS[result.outcome]}: {message}")
    measurement = result.measurement
    usable = request.memory_limit_bytes - request.headroom_bytes
    constraints["memory"] = math.log(measurement.memory.bytes / usable)
    unstable = "" if request.goal.stability == "off" else instability(measurement)
    constraints["stability"] = VIOLATED if unstable else SATISFIED
    reason = f"unstable: {unstable}" if unstable else ""
    if constraints["memory"] > 0:
        reason = f"needs {format_bytes(measurement.memory.bytes)}, {format_bytes(usable)} may be used"
    return Verdict(value=measurement.samples_per_second, constraints=constraints, reason=reason)


def instability(measurement: Measurement) -> str:
    """Why the losses of this probe speak against its configuration; empty if they do not."""
    losses = measurement.losses
    broken = sum(loss is None for loss in losses)
    if broken:
        return f"{broken} of {len(losses)} losses are not finite"
    steps = len(losses) - measurement.calibration_skips
    if measurement.skipped_steps > max(1.0, steps * MOST_SKIPS_PER_STEP):
        return f"the gradient scaler skipped {measurement.skipped_steps} of {steps} steps after calibration"
    finite = [loss for loss in losses if loss is not None]
    first, last = _mean(finite[:AVERAGED_LOSSES]), _mean(finite[-AVERAGED_LOSSES:])
    if len(finite) > 2 * AVERAGED_LOSSES and first > 0 and last > MOST_LOSS_GROWTH * first:
        return f"the loss grew from {first:.3g} to {last:.3g} in {len(losses)} steps"
    return ""


def _mean(values: list[float]) -> float:
    return sum(values) / max(len(values), 1)
