"""The first lines of a search: where, what, held what, within which bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from autotune.core.records import Config, Goal, StudyRequest
from autotune.core.requests import ProbeBudget
from autotune.knobs import KNOBS, touched
from autotune.knobs.base import TACIT, Knob
from autotune.knobs.batch_size import SMALLEST
from autotune.machine.environment import autotune_version
from autotune.objectives import objective_of
from autotune.sampler.space import SearchSpace
from autotune.study import layout as disk
from autotune.tuning.choice import FEWEST_FINALISTS
from autotune.tuning.racing import FEWEST_ROUNDS, probes
from autotune.tuning.settings import Settings
from autotune.units import counted, format_bytes, format_seconds

MEASURED = ProbeBudget()  # how long a probe measures
OWN_LOOP = (
    "the target's own loop is watched and not led, so not measured: computing and loading alone, the largest batch, "
    "validation; memory is not predicted"
)


def opening_lines(
    folder: Path, request: StudyRequest, space: SearchSpace, settings: Settings, *, resumed: bool, refused: bool = False
) -> list[str]:
    """Five lines of plain text, none longer than it must be; a sixth where earlier probes had another seed.

    `refused`: a search of this would not begin, which only a dry run outlives.
    """
    environment, facts = request.environment, request.facts
    device = "CPU" if environment.device == "cpu" else environment.device_name and environment.device.upper()
    samples = "" if facts.dataset_samples is None else f" · {facts.dataset_samples:,} samples"
    inferred = [f"{finding.name} inferred" for finding in facts.findings if finding.inferred]
    limit = f", limited to {format_bytes(request.memory_limit_bytes)}" if request.goal.memory_limit_bytes else ""
    state = "refused" if refused else "resumed" if resumed else "new"
    return [
        f"autotune {autotune_version()} · {request.target} · study {folder} ({state})",
        f"{device:<5} {environment.device_name} · {format_bytes(environment.device_bytes)}{limit}"
        f" · {environment.usable_cores} cores · torch {environment.torch}",
        f"Task  {facts.name}, {_count(facts.parameter_count)} parameters · {facts.data}{samples}"
        + "".join(f" · {text}" for text in inferred),
        f"Hold  {held(request)} · baseline {baseline(request, space, settings)}{_sought(request)}"
        f" · budget {format_seconds(settings.time_budget_seconds)}",
        f"Space {counted(len(space.configs), 'configuration')}: {_domains(space, request.baseline)}"
        + "".join(f" · {text}" for text in not_searched(request, space)),
        *(_other_seeds(folder, request.seed) if resumed else ()),
    ]


def held(request: StudyRequest) -> str:
    """What the search may not change: the samples per optimizer step, or nothing."""
    if request.goal.global_batch is not None:
        return f"global batch {request.goal.global_batch}"
    return "nothing: the global batch is searched too (hold it with --global-batch)"


def baseline(request: StudyRequest, space: SearchSpace, settings: Settings) -> str:
    """What is run today, and what of it was not declared or may not be recommended."""
    excluded = space.excludes(request.baseline)
    return (
        shown(request.baseline, moving(request))
        + (" (assumed)" if request.baseline_assumed else "")
        + (" (accumulated to hold it)" if _is_accumulated(request, settings) else "")
        + (f" (for comparison only: {excluded})" if excluded else "")
    )


def short_budget(settings: Settings, space: SearchSpace, inspection_seconds: float) -> str:
    """What to say of a time budget in which no search ends with a confirmation; empty if one does.

    A probe is taken for an inspection, which starts, loads, builds and takes a step as it does, and what it measures.
    """
    probe = inspection_seconds + MEASURED.min_warmup_seconds + MEASURED.max_compute_seconds + MEASURED.min_seconds
    others = max(0, min(FEWEST_FINALISTS, settings.probes or FEWEST_FINALISTS, len(space.configs) - 1))
    count = 1 + others + probes(others, FEWEST_ROUNDS, 1)
    if settings.time_budget_seconds >= count * probe:
        return ""
    return (
        f"The time budget of {format_seconds(settings.time_budget_seconds)} is short: a probe takes about "
        f"{format_seconds(probe)} here, and the shortest search with its confirmation {counted(count, 'probe')}. "
        f"Better give --time-budget {math.ceil(count * probe / 60)}m."
    )


def _other_seeds(folder: Path, seed: int) -> list[str]:
    """A study goes on with another seed: a speed hardly depends on it, and which weights were trained does."""
    earlier = sorted({asked.seed for asked in disk.read_asked(folder)} - {seed})
    if not earlier:
        return []
    return [
        f"Seed  {seed} for new probes, {' and '.join(map(str, earlier))} for those that the study has: other weights, "
        f"order of the data and choice of what is probed next; all of them count"
    ]


def _is_accumulated(request: StudyRequest, settings: Settings) -> bool:
    """Whether the baseline takes more steps than the user declared, to make up what `--global-batch` holds."""
    declared = {**(request.facts.baseline or {}), **settings.baseline}
    steps = request.baseline.gradient_accumulation_steps
    return isinstance(settings.global_batch, int) and "gradient_accumulation_steps" not in declared and steps > 1


def not_searched(request: StudyRequest, space: SearchSpace) -> list[str]:
    """What users expect to be searched or measured and is not, with the reason: `workers not tuned: ...`."""
    told, samples, batches = [], request.goal.global_batch, space.domains["batch_size"]
    if request.facts.owns_loop:
        told.append(OWN_LOOP)
    if not request.facts.takes_workers:
        told.append("workers not tuned: dataloader() takes no num_workers")
    asked = "batch_size" in {**request.facts.space, **request.goal.limits} or request.goal.tune is not None
    if samples is not None and len(batches) == 1 and not (asked or request.goal.exact):
        all_of_them = ",".join(str(size) for size in range(1, samples + 1) if samples % size == 0)
        told.append(
            f"batch not searched: {samples} samples are held per optimizer step, and no other batch from {SMALLEST} up "
            f"divides them (search smaller ones with --batch {all_of_them}, or free them with --global-batch free)"
        )
    return told


def moving(request: StudyRequest) -> tuple[Knob, ...]:
    """The knobs that this search may move, or that the baseline has moved: others are not worth a word or a column."""
    moved = touched([request.baseline])
    return tuple(knob for knob in KNOBS if len(request.domains.get(knob.name, ())) > 1 or knob in moved)


def shown(config: Config, knobs: Sequence[Knob] = KNOBS) -> str:
    """A configuration as in the table of probes, with the title of a column where there is but a number."""
    batch = f"{config.batch_size}×{config.gradient_accumulation_steps}"
    others = []
    for knob in knobs:
        text = knob.show(config[knob.name])
        if knob.name not in ("batch_size", "gradient_accumulation_steps") and text not in TACIT:
            others.append(f"{knob.label} {text}" if text.isdigit() else text)
    return ", ".join([batch, *others])


def _sought(request: StudyRequest) -> str:
    """What is not as always: another objective, and that nothing may change what is computed."""
    objective = objective_of(request.goal)
    sought = "" if objective.name == Goal().objective else f" · for {objective.wish}"
    return sought + (" · exact" if request.goal.exact else "")


def _domains(space: SearchSpace, today: Config) -> str:
    parts = []
    for knob in KNOBS:
        values = space.free.get(knob.name)
        if values is None:
            continue
        shown_values = [knob.show(value) for value in values]
        text = f"{shown_values[0]}..{shown_values[-1]}" if len(values) > 4 else ", ".join(shown_values)
        parts.append(f"{knob.label} {text}")
    only = shown(space.configs[0])
    return " · ".join(parts) or ("only the baseline" if today in space.configs else f"only {only}")


def _count(number: int) -> str:
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)
