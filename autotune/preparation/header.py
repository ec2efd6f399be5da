"""The first lines of a search: study, device, task, what is held, and the space."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path

from autotune.core.codes import Code
from autotune.core.records import Config, Goal, StudyRequest
from autotune.knobs import KNOBS
from autotune.knobs.changes import BATCH_KNOBS
from autotune.machine.environment import autotune_version
from autotune.objectives import objective_of
from autotune.preparation.declared_values import declared_baseline
from autotune.preparation.not_searched import not_searched
from autotune.preparation.settings import Settings
from autotune.sampler.space import SearchSpace
from autotune.sentences import capitalized
from autotune.study.shown import moving, shown_config
from autotune.targets.commands.command import Command, is_command
from autotune.units import counted, format_bytes, format_count, format_seconds, format_share


def opening_lines(
    folder: Path, request: StudyRequest, space: SearchSpace, settings: Settings, *, resumed: bool,
    refused: bool = False, brief: bool = False, seeds: Collection[int] = (),
) -> list[str]:  # fmt: skip
    """Return five lines of plain text; a sixth if earlier probes had another seed.

    `brief`: return four lines, and a fifth only for what is not searched, because the columns of the probes show what
    is searched. `LOOP_ONLY_OBSERVED` is then left out as a detail. `seeds` are those of earlier probes. `refused`: the
    search would be refused; only `--dry-run` still prints these lines.
    """
    environment, facts = request.environment, request.facts
    device = "CPU" if environment.device == "cpu" else environment.device_name and environment.device.upper()
    samples = "" if facts.dataset_samples is None else f" · {facts.dataset_samples:,} samples"
    inferred = [f"{one.name} inferred" for one in facts.check_lines if one.inferred]
    limit = f", limited to {format_bytes(request.memory_limit_bytes)}" if request.goal.memory_limit_bytes else ""
    state = "refused" if refused else "resumed" if resumed else "new"
    configurations = counted(len(space.configs), "configuration")
    unsearched = not_searched(request, space, settings)
    left_out = [one.text for one in unsearched if not (brief and one.code is Code.LOOP_ONLY_OBSERVED)]
    return [
        f"autotune {autotune_version()} · {_trained(request)} · study {folder} ({state})",
        f"{device:<5} {environment.device_name} · {format_bytes(environment.device_bytes)}{limit}"
        f" · {environment.usable_cores} cores · torch {environment.torch}{_ranks(request)}",
        f"Task  {facts.name}, {format_count(facts.parameter_count)} parameters · {facts.data}{samples}"
        + "".join(f" · {text}" for text in inferred),
        f"Hold  {held_phrase(request, space)} · baseline {baseline_phrase(request, space, settings)}{_sought(request)}"
        f" · budget {format_seconds(settings.time_budget_seconds)}" + (f" · {configurations}" if brief else ""),
        *([f"But   {' · '.join(left_out)}"] if brief and left_out else []),
        *([] if brief else [" · ".join((f"Space {configurations}: {_domains(space, request.baseline)}", *left_out))]),
        *_other_seeds(seeds, request.seed),
    ]


def notes_before_the_search(request: StudyRequest) -> list[str]:
    """Return what the user should know beforehand: that their own loop writes files, or that cores are too few."""
    ranks, cores = request.facts.ranks, request.environment.usable_cores
    if not request.facts.owns_loop and ranks > cores:
        return [
            f"{ranks} ranks share {counted(cores, 'core')}: they take turns, and the rates say little of a machine "
            f"with a core for each. Start at most {cores}."
        ]
    if not request.facts.owns_loop:
        return []
    told = [one for one in request.facts.check_lines if one.needs_attention]
    return [capitalized(one.text) + f" ({one.override})" * bool(one.override) + "." for one in told]


def _ranks(request: StudyRequest) -> str:
    """Return how many processes train together and through which backend; empty for one, and for those of a command."""
    count = request.facts.ranks
    if count == 1 or is_command(request.target):
        return ""
    return f" · {count} ranks ({'gloo' if request.environment.device == 'cpu' else 'NCCL'})"


def _trained(request: StudyRequest) -> str:
    """Return the target as the user named it; for a command the words that are typed today."""
    if not is_command(request.target):
        return request.target
    return shlex.join(Command.parse(request.target).recommended(request.baseline.values))


def held_phrase(request: StudyRequest, space: SearchSpace) -> str:
    """Return what the search may not change: the samples per optimizer step, or nothing."""
    if request.goal.global_batch is not None:
        ranks, whole = request.facts.ranks, request.goal.global_batch
        each = f" ({whole // ranks} on each)" if whole % ranks == 0 else ""  # a command may share it unequally
        of_all = f", of {ranks} ranks{each}" if ranks > 1 else ""
        return f"global batch {whole}{of_all}"
    if all(len(space.domains[name]) == 1 for name in BATCH_KNOBS):
        return "nothing: the global batch is free, but nothing that is searched changes it"
    knee = objective_of(request.goal).knee(request.goal)
    sought = "" if knee is None else f", for the smallest within {format_share(knee)} of the best"
    return f"nothing: the global batch is searched too{sought} (hold it with --global-batch)"


def baseline_phrase(request: StudyRequest, space: SearchSpace, settings: Settings) -> str:
    """Return the baseline in words, and which of it was not declared or may not be recommended."""
    excluded = space.excludes(request.baseline)
    return (
        shown_config(request.baseline.values, moving(request))
        + (" (assumed)" if request.baseline_assumed else "")
        + (" (accumulated to hold it)" if _is_accumulated(request, settings) else "")
        + (f" (for comparison only: {excluded.text})" if excluded else "")
    )


def _other_seeds(seeds: Collection[int], seed: int) -> list[str]:
    """Return that a study continues with another seed, which changes its speed little and the weights entirely."""
    earlier = sorted({*seeds} - {seed})
    if not earlier:
        return []
    return [
        f"Seed  {seed} for new probes; earlier probes had {' and '.join(map(str, earlier))}: initial weights, data "
        f"order and proposals differ, and all probes count"
    ]


def _is_accumulated(request: StudyRequest, settings: Settings) -> bool:
    """Return whether the baseline accumulates more than the user declared, because of `--global-batch`."""
    declared = declared_baseline(settings, request.facts)
    steps = request.baseline.gradient_accumulation_steps
    return isinstance(settings.global_batch, int) and "gradient_accumulation_steps" not in declared and steps > 1


def _sought(request: StudyRequest) -> str:
    """Return what is unusual: another objective, and that nothing may change what is computed."""
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
    only = shown_config(space.configs[0].values)
    return " · ".join(parts) or ("only the baseline" if today in space.configs else f"only {only}")
