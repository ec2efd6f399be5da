"""The end of a probe's process: what was seen from outside, and what it means if there is no result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from autotune.core.interference_readings import GpuUse
from autotune.core.requests import ResultT
from autotune.core.results import Failure, Outcome
from autotune.failures.classify import EXIT_CANNOT_WRITE, death_note, judge_exit, judge_loader_worker_kill
from autotune.launch.files import unwritable
from autotune.launch.monitor import Monitor


@dataclass(frozen=True, kw_only=True)
class ProbeEnd:
    """The end of a probe's process, seen from outside."""

    outcome: Outcome  # what the end means if there is no result
    failure: Failure
    phase_seconds: dict[str, float]
    started_at: str
    elapsed_seconds: float
    oom_kills: int | None  # by the kernel in this control group during the probe
    host_available_share: float  # lowest share seen, 0..1
    gpu: GpuUse | None = None
    has_stepped: bool = False  # whether an optimizer step was reported
    lost: str = ""  # how the fork server of a forked process was lost during the probe; empty if it was not


def judge_end(monitor: Monitor, kills: int | None, tail: str, folder: Path) -> tuple[Outcome, Failure]:
    """Return what the end of a process means that left no result.

    `kills` are the kernel's in this control group during the probe, `tail` is the end of its log, `folder` the probe's.
    """
    outcome, evidence = judge_exit(
        monitor.returncode or 0,
        timed_out_phase=monitor.phase if monitor.timed_out else None,
        oom_kills=kills,
        host_available_share=monitor.host_available_share,
        log_tail=tail,
    )
    if monitor.returncode == EXIT_CANNOT_WRITE:
        message = str(unwritable(folder, None))
    elif monitor.timed_out:
        evidence = message = f"{evidence}: {monitor.timed_out}"
    elif monitor.outgrown:
        outcome, message = Outcome.OOM_HOST, monitor.outgrown
        evidence = "its resident memory, looked at from outside"
    else:
        message = death_note(tail) or evidence
    return outcome, Failure(phase=monitor.phase, message=message, evidence=evidence, traceback=tail)


def timed(result: ResultT, ending: ProbeEnd) -> ResultT:
    """Return the result with the times that the launcher saw, if it has none of its own."""
    return replace(
        result,
        phase_seconds=result.phase_seconds or ending.phase_seconds,
        started_at=result.started_at or ending.started_at,
        elapsed_seconds=ending.elapsed_seconds,
    )


def told_of_kills(result: ResultT, ending: ProbeEnd) -> ResultT:
    """Return the result, judged again by what only the launcher can see of a loader worker's death."""
    evidence = result.failure.evidence if result.failure else ""
    judged = judge_loader_worker_kill(
        evidence, oom_kills=ending.oom_kills, host_available_share=ending.host_available_share
    )
    if not result.failure or not judged:
        return result
    outcome, how = judged
    return replace(result, outcome=outcome, failure=replace(result.failure, evidence=f"{evidence}; {how}"))


def with_evidence(failure: Failure, why: str) -> Failure:
    """Return the failure with one more reason for it, if there is one."""
    return replace(failure, evidence=f"{failure.evidence}; {why}") if why else failure
