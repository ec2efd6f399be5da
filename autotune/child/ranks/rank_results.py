"""The result of several ranks together: one measurement, or the one failure that caused the others. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from msgspec.structs import replace

from autotune.child.ranks.rank_comparison import (
    check_batches,
    check_parameters,
    different_on_purpose,
    differing_rank_lines,
)
from autotune.core.requests import ProbeRequest, Request, ResultT
from autotune.core.results import (
    Failure,
    Inspection,
    IsolatedTiming,
    Measurement,
    MemoryPeak,
    Outcome,
    ProbeResult,
    RankReading,
    Result,
)
from autotune.errors import TargetError
from autotune.failures.words import ended_early
from autotune.precision.records import LossRun, PrecisionCheckResult
from autotune.profile.judge import LEAST_LATE, waits_of
from autotune.profile.records import ProfileRequest, ProfileResult
from autotune.targets.commands.distributed import Launch
from autotune.targets.commands.watching.probe_log import own_log_tail, with_last_lines
from autotune.targets.tracebacks import is_users, stack_frames

# Messages of a rank when another rank has ended: gloo, NCCL, and the store of `torch.distributed` (torch 2.13).
_PEER_GONE = re.compile(
    r"Connection (closed|reset|refused|was likely closed)|Broken pipe|remote process exited|ncclRemoteError|"
    r"DistNetworkError|DistStoreError|failed to recv|Gloo .*(closed|timed out)|Timed out waiting \d+ms for (recv|send)",
    re.IGNORECASE,
)
_ELASTIC = r"exitcode\s*: (-?\d+) \(pid: {pid}\)"  # the summary of torch.distributed.elastic
# The exit status of the subprocess, as Accelerate prints it.
_ACCELERATE_EXIT = re.compile(r"returned non-zero exit status (\d+)|died with <Signals\.\w+: (\d+)>")
_PORT_IN_USE = re.compile(r"(?:port: (\d+).*)?EADDRINUSE")  # of the store of `torch.distributed` (torch 2.13)
MAIN_THREAD = "in _run_module_as_main"  # the last frame of the thread that runs the script
_WAITING = re.compile(r"torch/(distributed/|nn/parallel/distributed)|in _engine_run_backward$", re.MULTILINE)


def request_of_rank(request: Request[ResultT], number: int, count: int) -> Request[ResultT]:
    """Return the request for one of `count` ranks, which share the host's memory and the rate to be beaten.

    Only the request of rank 0 asks for files to be written.
    """
    limit = request.memory_limit_bytes
    if limit is not None and (request.device or "cpu") == "cpu":  # on other devices each rank has a GPU of its own
        request = replace(request, memory_limit_bytes=limit // count)
    if isinstance(request, ProbeRequest) and request.incumbent_samples_per_second is not None:
        own = request.incumbent_samples_per_second / count
        return cast("Request[ResultT]", replace(request, incumbent_samples_per_second=own))
    if isinstance(request, ProfileRequest) and number > 0:
        return cast("Request[ResultT]", replace(request, output=None))
    return request


def merged(results: Sequence[ResultT], outer_bytes: int) -> ResultT:
    """Return the result of all ranks, none of which failed: the slowest sets the pace, and samples are added up.

    Losses that are compared are means over the ranks, for the steps that all of them took. Memory on the host is the
    sum over all processes; `outer_bytes` are those of the distributed launcher. Of a kind that is none of these, it is
    the result of rank 0. Raises `TargetError` if ranks of a command do not learn the same.
    """
    first: Any = results[0]
    if isinstance(first, Inspection):
        inspections = cast("Sequence[Inspection]", results)
        used = [one.process_bytes for one in inspections]
        seen = [one.facts.of_rank for one in inspections if one.facts and one.facts.of_rank]
        check_parameters(seen)
        check_batches(seen)
        facts = first.facts and replace(
            first.facts, ranks=len(results), of_rank=None, ranks_differ=different_on_purpose(seen),
            check_lines=(*first.facts.check_lines, *differing_rank_lines(seen)),
        )  # fmt: skip
        total = None if None in used else sum(one or 0 for one in used) + outer_bytes
        return cast("ResultT", replace(first, facts=facts, process_bytes=total))
    if isinstance(first, PrecisionCheckResult):
        runs = zip(*(one.runs for one in cast("Sequence[PrecisionCheckResult]", results)), strict=False)
        return cast("ResultT", replace(first, runs=tuple(map(_mean_run, runs))))
    if isinstance(first, ProfileResult):
        return cast("ResultT", _profiled(cast("Sequence[ProfileResult]", results)))
    if isinstance(first, ProbeResult):
        return cast("ResultT", _measured(cast("Sequence[ProbeResult]", results), outer_bytes))
    return results[0]


def _measured(results: Sequence[ProbeResult], outer_bytes: int) -> ProbeResult:
    found = [(one, one.measurement) for one in results if one.measurement is not None]
    slowest, own = min(found, key=lambda pair: pair[1].samples_per_second)
    all_of_them = [one for _, one in found]
    factor = sum(one.samples_per_step for one in all_of_them) / own.samples_per_step
    whole = replace(
        own,
        samples=tuple(round(count * factor) for count in own.samples),
        tokens=own.tokens and tuple(round(count * factor) for count in own.tokens),
        compute_only=_of_all(own.compute_only, factor),
        loader_only=_of_all(own.loader_only, factor),
        memory=_memory([one.memory for one in all_of_them], outer_bytes),
        noisy=any(one.noisy for one in all_of_them),
        shapes_vary=any(one.shapes_vary for one in all_of_them),
        # That of the rank with the least: the others also wait there for its decision, which is no watching.
        watching_seconds_per_step=_least(one.watching_seconds_per_step for one in all_of_them),
        busy_seconds=(),
        ranks=tuple(_reading(one) for one in all_of_them),
    )
    return replace(slowest, measurement=whole)


def _profiled(results: Sequence[ProfileResult]) -> ProfileResult:
    """Return the readings of the rank that waits least for others, which sets the pace; with the parts of all."""
    if len(results) == 1:
        return results[0]
    ranks = tuple(one.parts for one in results)
    waits = waits_of(ranks)
    last = min(range(len(results)), key=waits.__getitem__)
    # Equally fast ranks take turns at waiting least: then rank 0 is shown, which people expect.
    chosen = last if waits[0] - waits[last] > LEAST_LATE * results[0].seconds else 0
    # If one rank needs DDP's search of the graph for unused parameters, all of them need it.
    needless = [{one.place for one in each.slow_lines if one.kind == "graph search"} for each in results]
    return replace(
        results[chosen], rank=chosen, ranks=ranks, samples=sum(one.samples for one in results),
        slow_lines=tuple(
            one for one in results[chosen].slow_lines
            if one.kind != "graph search" or all(one.place in places for places in needless)
        ),
    )  # fmt: skip


def _of_all(alone: IsolatedTiming | None, factor: float) -> IsolatedTiming | None:
    return alone and replace(alone, samples=round(alone.samples * factor))


def _memory(peaks: Sequence[MemoryPeak], outer_bytes: int) -> MemoryPeak:
    """Return the sum over all processes of the host, and the peaks of the GPU with the highest."""
    fullest = max(peaks, key=lambda one: one.bytes)
    retries = [one.allocator_retries for one in peaks if one.allocator_retries is not None]
    return replace(
        fullest,
        process_bytes=sum(one.process_bytes for one in peaks) + outer_bytes,
        workers_bytes=sum(one.workers_bytes for one in peaks),
        allocator_retries=max(retries, default=None),
    )


def _reading(one: Measurement) -> RankReading:
    return RankReading(
        step_seconds=one.step_seconds,
        loader_wait_seconds=one.loader_wait_seconds,
        busy_seconds=one.busy_seconds,
        memory_bytes=one.memory.bytes,
    )


def _least(values: Iterable[float | None]) -> float | None:
    return min((one for one in values if one is not None), default=None)


def _mean_run(runs: Sequence[LossRun]) -> LossRun:
    """Return the run of all ranks: mean losses, and the gradients of rank 0, which are equal on all ranks."""
    first, losses = runs[0], tuple(zip(*(run.losses for run in runs), strict=False))  # as long as the shortest of them
    return replace(
        first,
        losses=tuple(None if None in each else fmean(loss for loss in each if loss is not None) for each in losses),
        gradient_norms=first.gradient_norms[: len(losses)],
        zero_gradient_shares=first.zero_gradient_shares[: len(losses)],
        skipped_steps=tuple(step for step in first.skipped_steps if step < len(losses)),
    )


def failure_that_caused_the_others(results: Mapping[int, ResultT], count: int, has_died: bool) -> ResultT | None:
    """Return the failed result that explains the others; None if the death of another rank explains it.

    Running out of memory comes first, then the death of a rank, then errors other than that another rank has ended.
    """
    failed = {number: one for number, one in results.items() if one.failure is not None}
    order = {number: (not one.outcome.out_of_memory, _misses_another(one)) for number, one in failed.items()}
    cause = min(failed, key=lambda number: (*order[number], number), default=None)
    if cause is None or (has_died and order[cause][0]):
        return None
    result, failure = failed[cause], failed[cause].failure
    assert failure is not None, "it failed"
    said = {one.failure.message for one in failed.values() if one.failure}
    if len(failed) == count and len(said) == 1:  # all ranks have the same error: any of them will do
        return result
    message = failure.message
    if ended_early(failure) and (others := [one for one in range(count) if not _ended_early(results.get(one))]):
        message = _not_alike(message, others)
    return replace(result, failure=replace(failure, message=f"{_called(cause, count)}{message}"))


def _ended_early(result: Result | None) -> bool:
    return result is not None and ended_early(result.failure)


def _not_alike(message: str, others: Sequence[int]) -> str:
    """Return the message of a rank whose training ended well before that of `others`."""
    said, lines, printed = message.partition("\n")
    one = f"Rank {others[0]} has not ended: if it takes"
    those = one if len(others) == 1 else "Others have not ended: if they take"
    return f"{said} {those} more steps, give all ranks as many batches, as DistributedSampler does.{lines}{printed}"


def _misses_another(result: Result) -> bool:
    failure = result.failure
    return failure is not None and _PEER_GONE.search(f"{failure.message} {failure.evidence}") is not None


def _called(number: int, count: int) -> str:
    return f"rank {number} of {count}: " if count > 1 else ""


def hung(request: Request[ResultT], stacks: Mapping[int, str], phase: str) -> ResultT:
    """Return the result of silent ranks: it names the ranks that do not wait for another, and where they are."""
    frames = {number: _frames(text) for number, text in stacks.items()}
    busy = [number for number, found in frames.items() if not _is_waiting(found)]
    culprits = busy or list(stacks)  # if all of them wait, each is named with its waiting line
    named = " and ".join(f"rank {number}{_place(frames[number])}" for number in culprits)
    others = [number for number in stacks if number not in culprits]
    waiting = f"rank {others[0]} waits" if len(others) == 1 else f"{len(others)} other ranks wait"
    behind = f"; {waiting} for {'it' if len(culprits) == 1 else 'them'}" if others else ""
    message = f"{named} gave no sign of life{behind}"
    text = "\n".join(f"rank {number}:\n{stack}" for number, stack in stacks.items())
    failure = Failure(phase=phase, message=message, evidence=f"given up in phase {phase}", traceback=text)
    return request.failed(Outcome.TIMEOUT, failure)


def _frames(stacks: str) -> list[tuple[str, str, str]]:
    """Return file, line and function of each frame of the script's thread, innermost first; empty without stacks."""
    return stack_frames(next((thread for thread in stacks.split("\n\n") if MAIN_THREAD in thread), ""))


def _is_waiting(frames: Sequence[tuple[str, str, str]]) -> bool:
    return bool(frames) and _WAITING.search("{0} in {2}".format(*frames[0])) is not None


def _place(frames: Sequence[tuple[str, str, str]]) -> str:
    """Return the place of a rank's program, as ` in train.py:12 (main)`; empty: unknown."""
    if not frames:
        return ""
    own = next((one for one in frames if is_users(Path(one[0]))), frames[0])
    return f" in {Path(own[0]).name}:{own[1]} ({own[2]})"


def died(request: Request[ResultT], number: int, count: int, phase: str) -> ResultT:
    """Return the result for a rank that ended without a result and without a known exit status."""
    message = f"{_called(number, count)}ended without a result"
    return request.failed(Outcome.CRASHED, Failure(phase=phase, message=message, evidence="its process is gone"))


def exit_status(pid: int) -> int | None:
    """Return the exit status of rank process `pid` from the launcher's log, or minus its signal; None: not logged."""
    log = own_log_tail()
    if found := re.findall(_ELASTIC.format(pid=pid), log):
        return int(found[-1])
    found = _ACCELERATE_EXIT.findall(log)
    return None if not found else int(found[-1][0] or 0) or -int(found[-1][1])


def other_ranks(launch: Launch, started: int) -> TargetError:
    """Return the error for a distributed launcher that started another number of ranks than its command says."""
    if started == 1 and "--cpu" in launch.options:  # Accelerate 1.15, without mpirun
        return TargetError(
            f"{launch.label} started 1 process, and the command says {launch.ranks}. With --cpu it starts no more, "
            f"however many are asked for. Write torchrun --nproc-per-node {launch.ranks} in its place: Accelerate "
            f"finds these ranks."
        )
    return TargetError(
        f"{launch.label} started {started} process{'es' * (started != 1)}, and the command says {launch.ranks}. The "
        f"number probably comes from a configuration file, a variable, or the devices there are. Write "
        f"{launch.distributed.ranks_option} with the number that trains."
    )


def failed_to_start(label: str, status: int | None) -> TargetError:
    """Return the error for a distributed launcher that ended before it had started a rank."""
    if found := _PORT_IN_USE.search(own_log_tail()):
        port = f"port {found[1]}" if found[1] else "its port"
        return TargetError(
            f"{label} started no rank, because {port} is in use. Another training probably has it, perhaps one that "
            f"was left running. End that, give another --master-port, or let {label} choose one: --standalone."
        )
    return TargetError(with_last_lines(
        f"{label} ended with exit status {status} and started no rank. Its options are probably not what it takes. "
        f"Run the command by itself, and correct it."
    ))  # fmt: skip
