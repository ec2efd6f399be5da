"""The first lines of a search: study, device, task, what is held, and the space."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.core.records import Config, Goal, StudyRequest, Value
from autotune.knobs import KNOBS, worker_knob
from autotune.knobs.base import Circumstances
from autotune.knobs.batch_size import SMALLEST
from autotune.knobs.changes import BATCH_KNOBS
from autotune.machine.environment import autotune_version
from autotune.objectives import objective_of
from autotune.sampler.idle import idle_lines
from autotune.sampler.space import SearchSpace, is_settable
from autotune.sentences import capitalized
from autotune.study.shown import moving, shown_config
from autotune.targets.commands.command import Command, is_command
from autotune.tuning.declared import declared_baseline
from autotune.tuning.settings import Settings
from autotune.tuning.short_budget import budget_note
from autotune.units import counted, format_bytes, format_count, format_seconds, format_share

if TYPE_CHECKING:
    from autotune.study.history import History
    from autotune.tuning.open_study import OpenStudy
    from autotune.tuning.reporter import Reporter

OWN_LOOP = (
    "the target's own loop runs by itself and is only observed, so not measured: computing and loading alone, the "
    "largest batch, validation; memory is not predicted"
)

BF16_NEEDS_OPTION = "without a GPU, transformers takes bf16 only with --use_cpu True: type it, and precision is tuned"


def tell_opening(
    study: OpenStudy, history: History, settings: Settings, reporter: Reporter, gone_seconds: float
) -> bool:
    """Tell what is searched, and whether the time budget is short, which is returned."""
    request, is_resumed, short, before = study.request, study.is_resumed, "", list[str]()
    lines = opening_lines(
        study.folder, request, study.space, settings, resumed=is_resumed, brief=True,
        seeds=[trial.seed for trial, _ in history.judged],
    )  # fmt: skip
    reporter.opening(lines, moving(request))
    if request.facts.owns_loop:
        reporter.detail(f"{capitalized(OWN_LOOP)}.")
    if not is_resumed:
        short = budget_note(settings, request, study.space, study.inspection_seconds, gone_seconds)
        before = notes_before_the_search(request)
    changed = study.code_changed.text if study.code_changed else ""
    for note in filter(None, (study.notice, changed, *before, short)):
        reporter.note(note)
    return bool(short)


def opening_lines(
    folder: Path, request: StudyRequest, space: SearchSpace, settings: Settings, *, resumed: bool,
    refused: bool = False, brief: bool = False, seeds: Collection[int] = (),
) -> list[str]:  # fmt: skip
    """Return five lines of plain text; a sixth where earlier probes had another seed.

    `brief`: four, and a fifth only for what is not searched: the columns of the probes show what is. What no own loop
    has measured is a detail then.
    `seeds`: of earlier probes. `refused`: the search would be refused; only `--dry-run` still prints these lines.
    """
    environment, facts = request.environment, request.facts
    device = "CPU" if environment.device == "cpu" else environment.device_name and environment.device.upper()
    samples = "" if facts.dataset_samples is None else f" · {facts.dataset_samples:,} samples"
    inferred = [f"{finding.name} inferred" for finding in facts.findings if finding.inferred]
    limit = f", limited to {format_bytes(request.memory_limit_bytes)}" if request.goal.memory_limit_bytes else ""
    state = "refused" if refused else "resumed" if resumed else "new"
    configurations = counted(len(space.configs), "configuration")
    left_out = [one for one in not_searched(request, space, settings) if not (brief and one == OWN_LOOP)]
    return [
        f"autotune {autotune_version()} · {_trained(request)} · study {folder} ({state})",
        f"{device:<5} {environment.device_name} · {format_bytes(environment.device_bytes)}{limit}"
        f" · {environment.usable_cores} cores · torch {environment.torch}",
        f"Task  {facts.name}, {format_count(facts.parameter_count)} parameters · {facts.data}{samples}"
        + "".join(f" · {text}" for text in inferred),
        f"Hold  {held_phrase(request)} · baseline {baseline_phrase(request, space, settings)}{_sought(request)}"
        f" · budget {format_seconds(settings.time_budget_seconds)}" + (f" · {configurations}" if brief else ""),
        *([f"But   {' · '.join(left_out)}"] if brief and left_out else []),
        *([] if brief else [" · ".join((f"Space {configurations}: {_domains(space, request.baseline)}", *left_out))]),
        *_other_seeds(seeds, request.seed),
    ]


def notes_before_the_search(request: StudyRequest) -> list[str]:
    """Return what the user should know of a loop of his own before it is run: that it writes files, say."""
    if not request.facts.owns_loop:
        return []
    told = [finding for finding in request.facts.findings if finding.needs_attention]
    return [capitalized(one.text) + f" ({one.override})" * bool(one.override) + "." for one in told]


def _trained(request: StudyRequest) -> str:
    """Return the target as the user named it: of a command the words that are typed today."""
    if not is_command(request.target):
        return request.target
    return shlex.join(Command.parse(request.target).recommended(request.baseline.values))


def held_phrase(request: StudyRequest) -> str:
    """Return what the search may not change: the samples per optimizer step, or nothing."""
    if request.goal.global_batch is not None:
        ranks = request.facts.ranks
        of_all = f", of {ranks} ranks" if ranks > 1 else ""
        return f"global batch {request.goal.global_batch}{of_all}"
    knee = objective_of(request.goal).knee(request.goal)
    sought = "" if knee is None else f", for the smallest within {format_share(knee)} of the best"
    return f"nothing: the global batch is searched too{sought} (hold it with --global-batch)"


def baseline_phrase(request: StudyRequest, space: SearchSpace, settings: Settings) -> str:
    """Return the baseline in words, and what of it was not declared or may not be recommended."""
    excluded = space.excludes(request.baseline)
    return (
        shown_config(request.baseline.values, moving(request))
        + (" (assumed)" if request.baseline_assumed else "")
        + (" (accumulated to hold it)" if _is_accumulated(request, settings) else "")
        + (f" (for comparison only: {excluded})" if excluded else "")
    )


def _other_seeds(seeds: Collection[int], seed: int) -> list[str]:
    """Return that a study goes on with another seed, which moves its speed little, and the trained weights entirely."""
    earlier = sorted({*seeds} - {seed})
    if not earlier:
        return []
    return [
        f"Seed  {seed} for new probes; earlier probes had {' and '.join(map(str, earlier))}: initial weights, data "
        f"order and proposals differ, and all probes count"
    ]


def _is_accumulated(request: StudyRequest, settings: Settings) -> bool:
    """Whether the baseline takes more steps than the user declared, to make up what `--global-batch` holds."""
    declared = declared_baseline(settings, request.facts)
    steps = request.baseline.gradient_accumulation_steps
    return isinstance(settings.global_batch, int) and "gradient_accumulation_steps" not in declared and steps > 1


def not_searched(request: StudyRequest, space: SearchSpace, settings: Settings) -> list[str]:
    """Return what users expect to be searched or measured and is not, with the reason: `workers not tuned: ...`."""
    facts, goal, batches = request.facts, request.goal, space.domains["batch_size"]
    samples, limited = goal.global_batch, request.limits
    idle = idle_lines(space, limited, declared_baseline(settings, facts), request.baseline)
    lines = [*_unsettable(request), *(line for of_one in idle.values() for line in of_one)]
    if facts.owns_loop:
        lines.append(OWN_LOOP)
    if not facts.takes_workers and worker_knob().name not in idle:
        lines.append("workers not tuned: dataloader() takes no num_workers")
    elif facts.takes_workers and facts.repeats_samples and worker_knob().name not in limited:
        lines.append("workers above 1 not searched: each would give all samples again (search them with --workers 0:8)")
    for knob in KNOBS if goal.exact else ():
        if not knob.is_exact(facts) and knob.name in (goal.tune or ("batch_size",)):
            why = (
                "BatchNorm takes its statistics from it" if knob.name == "batch_size" else "it changes what is computed"
            )
            lines.append(f"{knob.label} not searched: --exact holds it, because {why}")
    is_free = samples is None and goal.tune is None and is_settable("gradient_accumulation_steps", facts)
    if is_free and "gradient_accumulation_steps" not in limited:
        lines.append(
            "accum not searched: it changes what the model learns and hardly the speed (search it with --accum 1:8)"
        )
    lines += _batches_left_out(request, batches)
    asked = "batch_size" in limited or goal.tune is not None
    takes_others = facts.settable is None or {*BATCH_KNOBS} <= {*facts.settable}
    if samples is not None and len(batches) == 1 and takes_others and not (asked or goal.exact):
        all_of_them = ",".join(str(size) for size in range(1, samples + 1) if samples % size == 0)
        lines.append(
            f"batch not searched: {samples} samples are held per optimizer step, and no other batch from {SMALLEST} up "
            f"divides them (search smaller ones with --batch {all_of_them}, or free them with --global-batch free)"
        )
    return lines + _of_one_value(space, [name for name in goal.tune or () if name not in limited], lines)


def _of_one_value(space: SearchSpace, asked: Collection[str], told: Sequence[str]) -> list[str]:
    """Return which knobs that `--tune` names have nothing to be tuned, where no other line says so."""
    return [
        f"{knob.label} not tuned: {knob.show(space.domains[knob.name][0])} is its only value here"
        for knob in KNOBS
        if knob.name in asked and len(space.domains[knob.name]) == 1
        and not any(line.startswith(f"{knob.label} ") for line in told)
    ]  # fmt: skip


def _batches_left_out(request: StudyRequest, batches: Sequence[Value]) -> list[str]:
    """Return which micro-batches that user or target name one by one are not searched, and why."""
    facts, held_samples = request.facts, request.goal.global_batch
    limit = request.limits.get("batch_size")
    named = [one for one in (limit and limit.values) or () if isinstance(one, int) and one not in batches]
    if not named or not is_settable("batch_size", facts) or request.goal.exact:
        return []
    uneven = [one for one in named if held_samples is not None and held_samples // facts.ranks % one]
    large = [one for one in named if one not in uneven]
    told = f"not searched: the held global batch {held_samples} is no multiple (free it with --global-batch free)"
    parts = [(uneven, told), (large, "not searched: more samples than the data have for one step")]
    return [f"batch {', '.join(map(str, some))} {why}" for some, why in parts if some]


def _unsettable(request: StudyRequest) -> list[str]:
    facts, held_samples = request.facts, request.goal.global_batch
    if facts.settable is None:
        return []
    here = Circumstances(facts=facts, environment=request.environment, global_batch=None)
    unsettable = [one for one in KNOBS if not is_settable(one.name, facts)]
    carried = Command.parse(request.target).knobs if is_command(request.target) else ()
    told_of = {finding.name for finding in facts.findings}  # with the reason
    names = [
        one.label for one in unsettable
        if one.name not in carried and one.label not in told_of and not one.on_request and len(one.domain(here)) > 1
    ]  # fmt: skip
    advice = "type one with its value of today, or name it with --map KNOB=--ARGUMENT"
    if is_command(request.target) and not carried:
        advice = "add an argument for each to your script, or write a model.py: autotune init"
    told = f"no argument of the command sets {'them' if len(names) > 1 else 'it'} ({advice})"
    lines = [f"{', '.join(names)} not tuned: {told}"] * bool(names)
    lines += [f"{one.label} not tuned: {BF16_NEEDS_OPTION}" for one in unsettable if one.name in carried]
    batch, accumulation = (name in facts.settable for name in BATCH_KNOBS)
    if held_samples and batch and not accumulation:
        owner = "manual optimization" if facts.owns_loop else "step()"
        taker = "the command" if is_command(request.target) else owner
        lines.append(
            f"batch not searched: {held_samples} samples are held per optimizer step, and {taker} takes no "
            f"gradient accumulation (free them with --global-batch free)"
        )
    return lines


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
