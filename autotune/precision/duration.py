"""Decides whether a precision check may still run, its size, and how long it takes."""

from __future__ import annotations

from autotune.core.results import Outcome, ProbeResult
from autotune.precision.arithmetic import own_arithmetic, precision_of
from autotune.study.history import History
from autotune.study.pace import starting_seconds
from autotune.targets.commands.command import is_command

CHECK_STEPS = 50  # of a first precision check (docs/notes/precision.md 3)
SEED_SECONDS = 60.0  # at most, for `CHECK_STEPS` steps of the three runs of one seed
CHECK_RUNS = 3  # of one seed: full precision, the same perturbed, the candidate
RUNS_SLOWER = 1.5  # than the fastest probe: two of them are in full precision (6.2 s for 4.1 s, digits_cnn, Xeon)


def is_dtype_open(history: History) -> bool:
    """Return whether an arithmetic may still be compared: any that is offered at first, later one that was probed."""
    plain = own_arithmetic(history.request.facts)
    compared = [verdict.values for verdict in history.loss_verdicts]
    if not compared:
        return any(set(history.request.domains.get(name, ())) - {value} for name, value in plain.items())
    probed = (trial.config for trial, verdict in history.judged if verdict.feasible)
    return any(precision_of(one) not in (plain, *compared) and not history.refusal(one) for one in probed)


def check_batch(history: History) -> int:
    """Return the micro-batch of a check: the baseline's, or less of it if checks or probes ran out of memory."""
    batch = history.request.baseline.batch_size
    too_large = [t.config.batch_size for t, _ in history.judged if t.result.outcome is Outcome.OOM_DEVICE]
    while batch > 1 and batch >= min(too_large, default=batch + 1):
        batch //= 2
    return batch


def check_seconds(seen: ProbeResult, batch: int, steps: int, processes: int = 1) -> float:
    """Return the seconds of one check at the pace of one probe; `processes` is how many start for its three runs."""
    assert seen.measurement is not None, "only what was measured has a pace"
    samples = CHECK_RUNS * steps * batch
    return processes * starting_seconds(seen) + RUNS_SLOWER * samples / seen.measurement.samples_per_second


def probable_check_seconds(history: History, steps: int) -> float:
    """Return the seconds of a check of so many steps at the pace of the fastest probe; 0.0 where none may come."""
    if history.request.goal.stability == "off" or not is_dtype_open(history):
        return 0.0
    processes, batch = CHECK_RUNS if is_command(history.request.target) else 1, check_batch(history)
    measured = (trial.result for trial, _ in history.judged if trial.result.measurement)
    return min((check_seconds(result, batch, steps, processes) for result in measured), default=0.0)
