"""What users expect to be searched or measured and is not, each with the reason and how to ask for it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autotune.core.records import StudyRequest, Value
from autotune.knobs import KNOBS, worker_knob
from autotune.knobs.base import Circumstances
from autotune.knobs.batch_size import SMALLEST_BATCH
from autotune.knobs.changes import BATCH_KNOBS
from autotune.preparation.declared_values import declared_baseline
from autotune.preparation.settings import Settings
from autotune.sampler.idle import idle_lines
from autotune.sampler.space import SearchSpace, is_settable
from autotune.targets.commands.command import Command, is_command

OWN_LOOP = (
    "autotune only observes this loop: it does not measure computing and loading alone, the largest batch or "
    "validation, and does not predict memory"
)

BF16_NEEDS_OPTION = "without a GPU, transformers takes bf16 only with --use_cpu True: type it, and precision is tuned"


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
            f"batch not searched: {samples} samples are held per optimizer step, and no other batch from "
            f"{SMALLEST_BATCH} up divides them (search smaller ones with --batch {all_of_them}, or free them with "
            f"--global-batch free)"
        )
    return lines + _of_one_value(space, [name for name in goal.tune or () if name not in limited], lines)


def _of_one_value(space: SearchSpace, asked: Collection[str], told: Sequence[str]) -> list[str]:
    """Return the knobs that `--tune` names but that have only one value, if no other line says so."""
    return [
        f"{knob.label} not tuned: {knob.show(space.domains[knob.name][0])} is its only value here"
        for knob in KNOBS
        if knob.name in asked and len(space.domains[knob.name]) == 1
        and not any(line.startswith(f"{knob.label} ") for line in told)
    ]  # fmt: skip


def _batches_left_out(request: StudyRequest, batches: Sequence[Value]) -> list[str]:
    """Return which of the micro-batches that user or target list are not searched, and why."""
    facts, held_samples = request.facts, request.goal.global_batch
    limit = request.limits.get("batch_size") if "batch_size" in (request.goal.tune or ("batch_size",)) else None
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
    told_of = {one.name for one in facts.check_lines}  # with the reason
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
