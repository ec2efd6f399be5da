"""The run on shapes beside a profile: what its tensors are for where there was not enough memory, and else a check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from autotune.core.codes import Code
from autotune.core.memory_breakdown import Breakdown
from autotune.core.notices import notice
from autotune.core.records import Config, Value
from autotune.core.requests import ProbeBudget
from autotune.core.results import Outcome
from autotune.errors import TargetError
from autotune.knobs import KNOBS, knob, traded
from autotune.knobs.base import MemoryEffect
from autotune.launch.base import Launcher
from autotune.memory.model import Arm
from autotune.memory.records import DRY_RUN_MICRO_BATCHES, DryRun, DryRunRequest
from autotune.profile.memory_judge import largest_modules
from autotune.profile.records import ProfileRequest, ProfileResult
from autotune.units import format_bytes, format_share

MAX_SECONDS = 60.0  # of steps on shapes: each takes a second or two, whatever the batch
MEMORY_STARTING_SECONDS = 120.0  # of importing and loading besides, before the process is given up
MOST_NAMED_PARTS, LEAST_NAMED_SHARE = 3, 0.01  # modules and categories in a sentence; share of the activations


def on_shapes(asked: ProfileRequest, domains: Mapping[str, Sequence[Value]], launcher: Launcher, place: Path) -> DryRun:
    """Take the step that is profiled without contents, and again with each way to recompute activations."""
    values = asked.config.values | {one.name: one.default for one in KNOBS if one.compiles}
    folder = place / DryRunRequest.FOLDER
    folder.mkdir()
    request = DryRunRequest(
        target=asked.target,
        config=Config(values=values),
        arms=({}, *_recomputing(values, domains)),
        batches=(asked.config.batch_size,),
        device=asked.device,
        micro_batches=min(DRY_RUN_MICRO_BATCHES, asked.config.gradient_accumulation_steps),
        by_category=True,
        max_seconds=MAX_SECONDS,
        seed=asked.seed,
        budget=ProbeBudget(total_deadline_seconds=MAX_SECONDS + MEMORY_STARTING_SECONDS),
    )
    return launcher.run(request, folder)


def with_shapes(result: ProfileResult, asked: ProfileRequest, found: DryRun) -> ProfileResult:
    """Return the result with what the run on shapes found, or why it found nothing.

    Raises `TargetError` for a profile that ran out of memory, with what needs most.
    """
    if result.failure is not None:
        raise TargetError(
            f"Profiling ran out of memory in phase {result.failure.phase}: {result.failure.message}. "
            f"{_allocations(found, asked.config.batch_size)} Try {smaller_batch(asked)}.",
            traceback=result.failure.traceback,
        )
    if result.memory is None:
        return result
    own, *others = found.arms or (Arm(values={}, reason=notice(Code.CANNOT_PREDICT, why=_why(found))),)
    return replace(result, memory=replace(result.memory, shapes=own, recomputed=tuple(others)))


def smaller_batch(asked: ProfileRequest) -> str:
    """Return how to ask for half the batch."""
    return f"a smaller batch: --config batch={max(1, asked.config.batch_size // 2)}"


def _allocations(found: DryRun, samples: int) -> str:
    """Return what a step would hold, the most first, in a sentence: for a process that had not enough memory."""
    breakdown = found.arms[0].breakdown if found.arms else None
    if breakdown is None:
        why = found.arms[0].why if found.arms else _why(found)
        return f"What needs most is not known, because {why or 'there was no time'}."
    ordered = sorted(breakdown.categories.items(), key=lambda one: -one[1])
    named = [f"{name} {format_bytes(size)}" for name, size in ordered[:MOST_NAMED_PARTS] if size]
    made = _made(breakdown)
    return (
        f"By shapes alone the tensors of a step, micro-batches of {samples}, take {format_bytes(breakdown.bytes)}: "
        f"{', '.join(named)}{made}."
    )


def _made(breakdown: Breakdown) -> str:
    total = breakdown.categories["activations"]
    modules = [one for one in largest_modules(breakdown.modules) if one.bytes > LEAST_NAMED_SHARE * total]
    named = modules[:MOST_NAMED_PARTS]
    shown = ", ".join(f"{f'{one.name} {one.kind}'.strip()} {format_share(one.bytes / total)}" for one in named)
    return f"; of the activations {shown}" if shown else ""


def _recomputing(values: Mapping[str, Value], domains: Mapping[str, Sequence[Value]]) -> Iterator[dict[str, Value]]:
    """Yield the values that trade time for memory, of knobs that do not do so yet and that a run on shapes sees."""
    done = traded(values)
    for name, choices in domains.items():
        if name not in done and knob(name).memory is MemoryEffect.SHRINKS:
            yield from ({name: one} for one in choices if name in traded({**values, name: one}))


def _why(found: DryRun) -> str:
    if found.failure is not None:
        return found.failure.message.partition("\n")[0]
    return found.outcome.value if found.outcome is not Outcome.OK else "no configuration was tried"
