"""The differences between a study and a search that would continue it, in the words of options and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Environment, Goal, Limit, StudyRequest, TargetFacts
from autotune.harmless import cropped
from autotune.knobs import KNOBS
from autotune.knobs.parsing import option
from autotune.machine.environment import fingerprint
from autotune.targets.reference import parse
from autotune.targets.source import difference, is_same, modules_of

# Fields that vary among machines of one fingerprint, or on one machine from boot to boot.
VARIED = ("device_uuid", "device_bytes", "host_bytes", "platform", "python")
MOMENTARY = ("shm_bytes", "mallocs", "variables")  # of the environment: its momentary state at the inspection
# Fields of the target that are not compared: facts of its one step, texts, sources of settings and space, and facts
# that earlier versions did not note.
OBSERVED = (
    "check_lines", "step", "baseline", "space", "global_batch_size", "framework", "is_program", "loader_options",
    "declared", "calls_attention", "compiles_itself", "compiles_model", "ranks", "has_data_parallel",
    "finds_unused_parameters",
    "ranks_differ",
)  # fmt: skip
NEWLY_NOTED = ("has_collate", "has_sampler", "batch_layout")  # of the target; an earlier version did not
OF_DECLARATIONS = ("changes_arithmetic", "memory", "ordered")  # of the user's own knobs: probes are judged by them
MOST_VALUE_CHARACTERS = 60  # of a value that a message shows
MOST_DIFFERENCES = 3  # in a message: the first ones are what the user changed, the rest follows from them
ABSENT = {"global_batch": "free"}  # what no value means, where it is not "not given"


def differences_of(old: StudyRequest, new: StudyRequest, goal_names: Mapping[str, str]) -> list[str]:
    """Return the differences of two requests, in words; empty if their trials can be compared.

    `goal_names` are the fields of the goal and the options of objectives to compare, each with the user's name for it.
    """
    if old.environment.default_threads is None:  # an earlier version did not note them
        noted = replace(old.environment, default_threads=new.environment.default_threads)
        old = replace(old, environment=noted)
    if old.facts.batch_layout is None:
        noted_of_target = {name: getattr(new.facts, name) for name in NEWLY_NOTED}
        old = replace(old, facts=replace(old.facts, **noted_of_target))
    environment, facts = as_begun(old, new.environment, new.facts)
    new = replace(new, environment=environment, facts=facts)
    if fingerprint(old.environment) == fingerprint(new.environment):
        old = _moved_here(old, new)
    return list(_asked(old, new, goal_names)) or list(_followed(old, new))


def as_begun(begun: StudyRequest, environment: Environment, facts: TargetFacts) -> tuple[Environment, TargetFacts]:
    """Return environment and facts with which a study that was begun as `begun` goes on.

    The measured times of an optimizer's update and of an exchange of gradients differ in each inspection: the first
    ones count. A study of an earlier version goes on without facts that this version did not note, and without knobs
    that it could not set.
    """
    if begun.environment.no_compiler is None:
        environment = replace(environment, no_compiler=None)
        facts = replace(facts, optimizer=begun.facts.optimizer, attention=begun.facts.attention)
    had_fewer = [one for one in KNOBS if one.former and begun.domains.get(one.name) == one.former]
    fewer = {one.name: Limit(values=one.former) for one in had_fewer if one.name not in begun.goal.limits}
    facts = replace(
        facts, space=fewer | facts.space, exposed_communication=begun.facts.exposed_communication,
        compiles_model=begun.facts.compiles_model, is_mean_loss=begun.facts.is_mean_loss,
    )  # fmt: skip
    settable = begun.facts.settable
    if settable is not None and facts.settable is not None and {*settable} < {*facts.settable}:
        facts = replace(facts, settable=settable)
    then, now = begun.facts.optimizer, facts.optimizer
    if then is not None and now is not None:
        facts = replace(facts, optimizer=replace(now, step_share=then.step_share))
    return environment, facts


def difference_of_target(old: StudyRequest, target: str) -> list[str]:
    """Return that `target` is another one than that of `old`, in words; empty if it is not."""
    same = is_same(old.target, old.target_digest, target)
    return [] if same else list(_difference("the target", old.target, target))


def machine_differences(there: Environment, here: Environment) -> list[str]:
    """Return the differences that keep a machine out of the study that was begun on another one, in words."""
    if fingerprint(there) == fingerprint(here):
        there = replace(there, device=here.device, **{name: getattr(here, name) for name in VARIED})
    return list(_of_machine(there, here))


def code_changed(old: StudyRequest, new: StudyRequest) -> Notice | None:
    """Return the warning that the target's code has changed since the study began; None: not known to have changed."""
    differs = difference(old.target_digest, new.target_digest) if old.target_digest else ""
    if differs in ("", "unfound"):
        return None
    reference = parse(new.target)
    modules = modules_of(new.target) if differs == "imports" else None
    return notice(Code.CODE_CHANGED, file=reference.label if reference else new.target, modules=modules)


def _moved_here(old: StudyRequest, new: StudyRequest) -> StudyRequest:
    """Return `old` as it would have been on the machine of `new`, which is of the same class."""
    here, there = new.environment, old.environment
    moved = replace(old, environment=replace(there, **{name: getattr(here, name) for name in VARIED}))
    if here.device_bytes == there.device_bytes:
        return moved
    limit, asked = old.goal.memory_limit_bytes, new.goal.memory_limit_bytes
    # A limit given as a share of memory changes with the machine. The typed text is not stored: a share is recognised
    # by its bytes, rounded down.
    if limit and asked and abs(asked - limit * here.device_bytes / there.device_bytes) <= 1:
        moved = replace(moved, goal=replace(moved.goal, memory_limit_bytes=asked))
    return replace(moved, memory_limit_bytes=new.memory_limit_bytes, headroom_bytes=new.headroom_bytes)


def _asked(old: StudyRequest, new: StudyRequest, goal_names: Mapping[str, str]) -> Iterator[str]:
    """Yield the differences of request, machine and code."""
    yield from difference_of_target(old, new.target)
    yield from _difference("the number of ranks (--ranks, --devices)", old.facts.ranks, new.facts.ranks)
    for name in dict.fromkeys((*old.baseline.values, *new.baseline.values)):
        then, now = (one.baseline.values.get(name) for one in (old, new))
        yield from _difference(f"the baseline's {name}", then, now)
    declared = {one.name: one for one in new.facts.declared}
    for one in old.facts.declared:
        for field in OF_DECLARATIONS if one.name in declared else ():
            yield from _difference(
                f"{field} of {one.name}", getattr(one, field), getattr(declared[one.name], field), "not said"
            )
    for field, name in goal_names.items():
        before, after = (_of_goal(goal, field) for goal in (old.goal, new.goal))
        yield from _difference(name, before, after, ABSENT.get(field, "not given"))
    for knob in KNOBS:
        before, after = old.goal.limits.get(knob.name), new.goal.limits.get(knob.name)
        yield from _difference(f"{option(knob.name)} or --fix {knob.alias}", before, after, "not given")
    yield from _of_machine(old.environment, new.environment)
    yield from _parts("the target's", old.facts, new.facts, OBSERVED)


def _of_machine(there: Environment, here: Environment) -> Iterator[str]:
    """Yield the differences of machines; those that vary within a class, such as bytes, only if there are no others."""
    yield from list(_parts("the machine's", there, here, (*MOMENTARY, *VARIED))) or _parts(
        "the machine's", there, here, MOMENTARY
    )


def _of_goal(goal: Goal, name: str) -> Any:
    """Return the value of a field, or of an option of the objective; None where the objective has no such option."""
    return getattr(goal, name) if name in goal.__struct_fields__ else goal.objective_options.get(name)


def _followed(old: StudyRequest, new: StudyRequest) -> Iterator[str]:
    """Yield the differences that follow from others: shown only if there are no others."""
    for name, values in new.domains.items():
        yield from _difference(f"the search of {name}", old.domains.get(name, ()), values)
    for field in ("memory_limit_bytes", "headroom_bytes", "baseline_assumed"):
        yield from _field_difference("", field, old, new)


def _parts(whose: str, old: msgspec.Struct, new: msgspec.Struct, leaving_out: tuple[str, ...]) -> Iterator[str]:
    for field in old.__struct_fields__:
        if field not in leaving_out:
            yield from _field_difference(f"{whose} ", field, old, new)


def _field_difference(whose: str, field: str, old: msgspec.Struct, new: msgspec.Struct) -> Iterator[str]:
    before, after = getattr(old, field), getattr(new, field)
    is_plural = field.endswith("s") and not field.endswith("ss") and not isinstance(after, bool)
    verbs = ("were", "are") if is_plural else ("was", "is")
    yield from _difference(f"{whose}{field.replace('_', ' ')}", before, after, verbs=verbs)


def _difference(
    name: str, before: Any, after: Any, absent: str = "none", verbs: tuple[str, str] = ("was", "is")
) -> Iterator[str]:
    if before != after:
        was, now = _typed(before, absent), _typed(after, absent)
        short = cropped(was, MOST_VALUE_CHARACTERS), cropped(now, MOST_VALUE_CHARACTERS)
        was, now = short if short[0] != short[1] else (was, now)  # do not cut off the difference
        yield f"{name} {verbs[0]} {was}, {verbs[1]} {now}"


def _typed(value: Any, absent: str) -> str:
    match value:
        case None:
            return absent
        case bool():
            return str(value).lower()
        case Limit(values=None):
            return f"{_typed(value.low, '')}:{_typed(value.high, '')}"
        case Limit(values=values):
            return _typed(values, absent)
        case tuple():
            return ",".join(_typed(one, "none") for one in value) or "none"
    return str(value)
