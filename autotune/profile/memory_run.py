"""The shape run of a profile: it explains the memory if there was not enough, and otherwise checks the count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from autotune.core.codes import Code
from autotune.core.memory_breakdown import Breakdown
from autotune.core.notices import Notice, notice
from autotune.core.records import Value
from autotune.core.requests import ResultT
from autotune.errors import TargetError
from autotune.knobs import knob, traded
from autotune.knobs.base import MemoryEffect
from autotune.launch.base import Launcher
from autotune.memory.asking import shape_run_request
from autotune.memory.model import Arm
from autotune.memory.records import ShapeRun, ShapeRunRequest
from autotune.profile.memory_judge import held_then, largest_modules, largest_sites
from autotune.profile.records import ProfileRequest, ProfileResult
from autotune.units import format_bytes, format_share

MAX_SECONDS = 60.0  # of the shape run: each step takes a second or two, whatever the batch
SITES_FOLDER = "sites"  # of a training that is repeated to see whose tensors take the memory
MAX_REPEATED_SECONDS = 180.0  # of that training, with its start
MOST_NAMED_PARTS, LEAST_NAMED_SHARE = 3, 0.01  # modules and categories in a sentence; share of the activations


class OutOfMemory(TargetError):
    """A profile ran out of memory. `result` has its failure, with the lines that made most."""

    def __init__(self, message: str, *, result: ProfileResult) -> None:
        super().__init__(message, traceback=result.failure.traceback if result.failure else "")
        self.result = result


def on_shapes(
    asked: ProfileRequest, domains: Mapping[str, Sequence[Value]], launcher: Launcher, place: Path
) -> ShapeRun:
    """Return the shape run of the profiled step, and of the step with each way to recompute activations."""
    folder = place / ShapeRunRequest.FOLDER
    folder.mkdir()
    request = shape_run_request(
        asked.target,
        asked.config,
        asked.device,
        arms=({}, *_recomputing(asked.config.values, domains)),
        batches=(asked.config.batch_size,),
        accumulation=asked.config.gradient_accumulation_steps,
        seconds=MAX_SECONDS,
        seed=asked.seed,
    )
    return launcher.run(replace(request, by_category=True), folder)


def with_sites(result: ResultT, asked: ProfileRequest, launcher: Launcher, place: Path) -> ResultT:
    """Return a result that ran out of memory with the lines whose tensors took it, if a repeated training shows them.

    For a loop of the user's own and for several ranks, of which no step can be taken on shapes.
    """
    assert result.failure is not None, "it ran out of memory"
    folder = place / SITES_FOLDER
    folder.mkdir()
    budget = replace(asked.budget, total_deadline_seconds=MAX_REPEATED_SECONDS)
    output = asked.output if asked.ranks == 1 else None  # for the allocator's snapshot: several ranks would write one
    found = launcher.run(replace(asked, extent="sites", output=output, budget=budget), folder)
    sites = found.failure.sites if found.failure else ()
    return replace(result, failure=replace(result.failure, sites=sites))


def with_shapes(result: ProfileResult, asked: ProfileRequest, found: ShapeRun) -> ProfileResult:
    """Return the result with what the shape run saw, or the reason why it saw nothing.

    Raises `OutOfMemory` for a profile that ran out of memory; the message names the largest parts.
    """
    if result.failure is not None:
        by_shapes = found.arms[0].breakdown if found.arms else None
        sites = result.failure.sites or (by_shapes.sites if by_shapes else ())
        why = " ".join(filter(None, (held_then(result.failure.sites), _allocations(found, asked.config.batch_size))))
        raise OutOfMemory(
            f"Profiling ran out of memory in phase {result.failure.phase}: {result.failure.message}. {why} "
            f"Try {smaller_batch(asked)}.",
            result=replace(result, failure=replace(result.failure, sites=sites)),
        )
    if result.memory is None:
        return result
    own, *others = found.arms or (Arm(values={}, reason=_why_no_arm(found)),)
    return replace(result, memory=replace(result.memory, shapes=own, recomputed=tuple(others)))


def smaller_batch(asked: ProfileRequest) -> str:
    """Return how to ask for half the batch."""
    return f"a smaller batch: --config batch={max(1, asked.config.batch_size // 2)}"


def _allocations(found: ShapeRun, samples: int) -> str:
    """Return a sentence on the memory of a step, largest parts first, for a profile that ran out of memory."""
    breakdown = found.arms[0].breakdown if found.arms else None
    if breakdown is None:
        why = found.arms[0].why if found.arms else _why_no_arm(found).text
        return f"What needs most is not known, because {why or 'there was no time'}."
    ordered = sorted(breakdown.categories.items(), key=lambda one: -one[1])
    named = [f"{name} {format_bytes(size)}" for name, size in ordered[:MOST_NAMED_PARTS] if size]
    made = _made(breakdown)
    lines = f" Of it {largest_sites(breakdown.sites)}." if breakdown.sites else ""
    return (
        f"By shapes alone the tensors of a step, micro-batches of {samples}, take {format_bytes(breakdown.bytes)}: "
        f"{', '.join(named)}{made}.{lines}"
    )


def _why_no_arm(found: ShapeRun) -> Notice:
    """Return why nothing was tried: the message of the failure that ended the process."""
    return notice(Code.CANNOT_PREDICT, why=found.why) if found.why else notice(Code.NOTHING_PREDICTED)


def _made(breakdown: Breakdown) -> str:
    total = breakdown.categories["activations"]
    modules = [one for one in largest_modules(breakdown.modules) if one.bytes > LEAST_NAMED_SHARE * total]
    named = modules[:MOST_NAMED_PARTS]
    shown = ", ".join(f"{f'{one.name} {one.kind}'.strip()} {format_share(one.bytes / total)}" for one in named)
    return f"; of the activations {shown}" if shown else ""


def _recomputing(values: Mapping[str, Value], domains: Mapping[str, Sequence[Value]]) -> Iterator[dict[str, Value]]:
    """Yield the values that trade time for memory, of knobs that do not do so yet and that a shape run sees."""
    done = traded(values)
    for name, choices in domains.items():
        if name not in done and knob(name).memory is MemoryEffect.SHRINKS:
            yield from ({name: one} for one in choices if name in traded({**values, name: one}))
