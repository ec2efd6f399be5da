"""What users expect to be searched or measured and is not, each with the reason and how to ask for it.

Pure, apart from reading the script of a command.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autotune.core.codes import Code
from autotune.core.notices import Notice, Number, notice
from autotune.core.records import StudyRequest, TargetFacts, Value
from autotune.knobs import KNOBS, knob, worker_knob
from autotune.knobs.base import Circumstances, Knob
from autotune.knobs.batch_size import SMALLEST_BATCH
from autotune.knobs.changes import BATCH_KNOBS
from autotune.knobs.compile_mode import is_compiled_already
from autotune.preparation.declared_values import declared_baseline
from autotune.preparation.settings import Settings
from autotune.sampler.idle import idle_notices
from autotune.sampler.space import SearchSpace, holds_micro_batch, is_settable
from autotune.targets.commands.command import Command, is_command
from autotune.targets.commands.recognition.known_arguments import KnownArguments, known_arguments

BATCH, ACCUMULATION = map(knob, BATCH_KNOBS)


def not_searched(request: StudyRequest, space: SearchSpace, settings: Settings) -> list[Notice]:
    """Return what users expect to be searched or measured and is not, with the reason: `workers not tuned: ...`."""
    facts, goal, batches, workers = request.facts, request.goal, space.domains[BATCH.name], worker_knob()
    samples, limited = goal.global_batch, request.limits
    idle = idle_notices(space, limited, declared_baseline(settings, facts), request.baseline)
    found = [*_unsettable(request), *_unoffered(request, space), *(one for of_one in idle.values() for one in of_one)]
    if facts.owns_loop:
        found.append(notice(Code.LOOP_ONLY_OBSERVED))
    if not facts.takes_workers and workers.name not in idle:
        found.append(_of(workers, Code.WORKERS_NOT_TAKEN))
    elif facts.takes_workers and facts.repeats_samples and workers.name not in limited:
        found.append(_of(workers, Code.WORKERS_REPEAT_SAMPLES))
    for held in KNOBS if goal.exact else ():
        if not held.is_exact(facts) and held.name in (goal.tune or (BATCH.name,)):
            found.append(_held_by_exact(held, facts))
    compiling = [one for one in KNOBS if one.compiles and is_compiled_already(facts)]
    found += [
        _of(one, Code.MODEL_COMPILED_BY_CODE)
        for one in compiling
        if one.name not in {*limited, *idle} and one.name in (goal.tune or (one.name,)) and is_settable(one.name, facts)
    ]
    is_free = samples is None and goal.tune is None and is_settable(ACCUMULATION.name, facts)
    if is_free and ACCUMULATION.name not in limited:
        found.append(_of(ACCUMULATION, Code.ACCUMULATION_NOT_SEARCHED))
    found += _batches_left_out(request, batches)
    asked = BATCH.name in limited or goal.tune is not None
    by_loss = holds_micro_batch(facts, goal) and len(batches) == 1
    if by_loss and is_settable(BATCH.name, facts) and not goal.exact:
        found.append(_of(BATCH, Code.LOSS_HOLDS_BATCH, option="--batch 8:512"))
    takes_others = facts.settable is None or {*BATCH_KNOBS} <= {*facts.settable}
    if samples is not None and len(batches) == 1 and takes_others and not (asked or by_loss or goal.exact):
        divisors = ",".join(str(size) for size in range(1, samples + 1) if samples % size == 0)
        found.append(
            _of(BATCH, Code.NO_OTHER_BATCH_DIVIDES, samples=samples, smallest=SMALLEST_BATCH, divisors=divisors)
        )
    return found + _of_one_value(space, [name for name in goal.tune or () if name not in limited], found)


def _of(one: Knob, code: Code, **numbers: Number) -> Notice:
    """Return the notice about a knob, with its name for programs and its label for people."""
    return notice(code, knob=one.name, label=one.label, **numbers)


def _held_by_exact(one: Knob, facts: TargetFacts) -> Notice:
    """Return why `--exact` holds a knob."""
    if one is not BATCH:
        return _of(one, Code.EXACT_HOLDS_KNOB)
    return _of(one, Code.EXACT_HOLDS_BATCH) if facts.has_batch_norm else _of(one, Code.LOSS_HOLDS_BATCH, option=None)


def _of_one_value(space: SearchSpace, asked: Collection[str], told: Sequence[Notice]) -> list[Notice]:
    """Return the knobs that `--tune` names but that have only one value, if no other notice says so."""
    labels = {one.numbers.get("label") for one in told}
    return [
        _of(one, Code.ONLY_VALUE, value=one.show(space.domains[one.name][0]))
        for one in KNOBS
        if one.name in asked and len(space.domains[one.name]) == 1 and one.label not in labels
    ]


def _batches_left_out(request: StudyRequest, batches: Sequence[Value]) -> list[Notice]:
    """Return which of the micro-batches that user or target list are not searched, and why."""
    facts, samples = request.facts, request.goal.global_batch
    limit = request.limits.get(BATCH.name) if BATCH.name in (request.goal.tune or (BATCH.name,)) else None
    named = [one for one in (limit and limit.values) or () if isinstance(one, int) and one not in batches]
    if not named or not is_settable(BATCH.name, facts) or request.goal.exact:
        return []
    uneven = [one for one in named if samples is not None and samples // facts.ranks % one]
    large = [one for one in named if one not in uneven]
    parts = ((Code.BATCHES_DO_NOT_DIVIDE, uneven, samples), (Code.BATCHES_EXCEED_DATA, large, None))
    return [_of(BATCH, code, batches=tuple(map(str, some)), samples=held) for code, some, held in parts if some]


def _unsettable(request: StudyRequest) -> list[Notice]:
    facts, samples = request.facts, request.goal.global_batch
    if facts.settable is None:
        return []
    here = Circumstances(facts=facts, environment=request.environment, global_batch=None)
    command = Command.parse(request.target) if is_command(request.target) else None
    unsettable = [one for one in KNOBS if not is_settable(one.name, facts)]
    carried = [one for one in unsettable if command is not None and one.name in command.knobs]
    told_of = {one.name for one in facts.check_lines}  # with the reason
    untold = [
        one for one in unsettable
        if one not in carried and one.label not in told_of and not one.on_request and len(one.domain(here)) > 1
    ]  # fmt: skip
    found = _without_argument(untold, command)
    for one in carried:
        refused = command is not None and command.lacks_use_cpu(one)
        if not refused:
            found.append(_of(one, Code.STUDY_WITHOUT_KNOB))
        elif not one.unoffered(request.environment):
            found.append(_of(one, Code.BF16_NEEDS_OPTION))
    batch, accumulation = (name in facts.settable for name in BATCH_KNOBS)
    if samples and batch and not accumulation:
        owner = "manual optimization" if facts.owns_loop else "step()"
        taker = "the command" if command is not None else owner
        found.append(_of(BATCH, Code.ACCUMULATION_NOT_TAKEN, samples=samples, taker=taker))
    return found


def _without_argument(knobs: Sequence[Knob], command: Command | None) -> list[Notice]:
    """Return which `knobs` no argument sets, without those whose argument was named when the command was read."""
    known = KnownArguments() if command is None else known_arguments(command)
    takes_none = command is not None and not command.knobs
    may_have = () if takes_none else known.could_have  # None: any
    left = [one for one in knobs if one.name not in known.had]
    typed = [one for one in left if may_have is None or one.name in may_have]
    parts = (
        (Code.KNOBS_WITHOUT_ARGUMENT, typed),
        (Code.COMMAND_WITHOUT_ARGUMENTS, [one for one in left if one not in typed]),
    )
    return [
        notice(
            code, knobs=tuple(one.name for one in some), labels=tuple(one.label for one in some), example=some[0].alias
        )
        for code, some in parts
        if some
    ]


def _unoffered(request: StudyRequest, space: SearchSpace) -> list[Notice]:
    """Return the knobs that would be tuned if this machine had values of them."""
    facts, goal, told_of = request.facts, request.goal, {one.name for one in request.facts.check_lines}
    carried = Command.parse(request.target).knobs if is_command(request.target) else ()
    return [
        _of(one, Code.MACHINE_LACKS_VALUES, why=why)
        for one in KNOBS
        if (why := one.unoffered(request.environment)) and len(space.domains[one.name]) == 1
        and (goal.tune is None or one.name in goal.tune) and one.name not in request.limits
        and (one.is_exact(facts) or not goal.exact) and one.label not in told_of
        and (is_settable(one.name, facts) or one.name in carried)
    ]  # fmt: skip
