"""Explains why a knob or a whole space has no value left to search, and which values are not available here."""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from autotune.core.records import Goal, Limit, TargetFacts, Value
from autotune.errors import UsageError
from autotune.knobs.base import Circumstances, Knob
from autotune.knobs.declared import text
from autotune.knobs.parsing import option
from autotune.sampler.configurations import Values


def unsettable(knob: Knob, facts: TargetFacts) -> str:
    """Return why this knob cannot be set for the target, and what to do, for a `UsageError`."""
    if not facts.owns_loop:
        return (
            f"{knob.name} cannot be set: step() of the target takes its optimizer steps for each batch by itself. How "
            f"losses of several batches add up is not known. Leave {option(knob.name)} out."
        )
    if why := next((one.text for one in facts.check_lines if one.name == knob.label), ""):
        return f"{knob.name} is {why}. A loop of the target's own is only observed. Leave {option(knob.name)} out."
    return (
        f"{knob.name} cannot be set: the command takes no argument for it, and it cannot be set from outside. "
        f"Say which argument it is with --map {knob.alias}=--argument, or leave {option(knob.name)} out."
    )


def available(knob: Knob, values: Values, circumstances: Circumstances, where: str) -> Values:
    """Return the `values`, which `where` asks for, that are available here. Raises `UsageError` if none is."""
    reasons = {value: why for value in values if (why := lacking(knob, value, circumstances))}
    if values and len(reasons) == len(values):
        asked = ", ".join(f"{knob.alias}={text(value)}" for value in values)
        raise UsageError(
            f"{asked} is not possible here: {'; '.join(dict.fromkeys(reasons.values()))}. It was probably written for "
            f"another machine or target. Change it in {where}."
        )
    return tuple(value for value in values if value not in reasons)


def lacking(knob: Knob, value: Value, circumstances: Circumstances) -> str:
    """Return what machine or target lacks for `value`; empty for the value that the user's code has today."""
    return "" if value == knob.left_alone(circumstances.facts) else knob.lacking(value, circumstances)


def no_value(knob: Knob, circumstances: Circumstances) -> str:
    """Return why this knob has no value left to search, and what to do, for a `UsageError`."""
    facts, limit = circumstances.facts, circumstances.limit
    left = f"o value is left for {knob.name} within {limit_phrase(limit)}{dividing_phrase(circumstances.global_batch)}"
    if knob.domain(dataclasses.replace(circumstances, facts=replace(facts, dataset_samples=None))):
        share = f", {facts.samples_of_a_rank:,} for each of {facts.ranks} ranks" if facts.ranks > 1 else ""
        return (
            f"The dataset has {facts.dataset_samples:,} samples{share}, and n{left}. The limit was probably meant "
            f"for a larger dataset. Lower {option(knob.name)} or `space` in the target."
        )
    is_one = limit is not None and limit.values is not None and len(limit.values) == 1
    return (
        f"N{left}. The limit and the target probably exclude each other. {'Change' if is_one else 'Widen'} "
        f"{option(knob.name)} or `space` in the target, or change --global-batch."
    )


def nothing_left(facts: TargetFacts, goal: Goal, batches: tuple[Value, ...]) -> str:
    """Return why no configuration is left to search, and what to do, for a `UsageError`."""
    if goal.global_batch is None:
        return (
            f"No configuration is left to search: every combination takes more than the {facts.dataset_samples} "
            f"samples of the dataset in one optimizer step. The batch was probably meant for a larger dataset. "
            f"Lower --batch."
        )
    return (
        f"No configuration is left to search: batch_size {', '.join(map(str, batches))} cannot make up the held global "
        f"batch {goal.global_batch} within the limits. It has to divide it, and the accumulation that follows has to "
        f"be allowed. Widen --batch, change {option('gradient_accumulation_steps')} (or `space` in the "
        f"target), tune batch_size too, or change --global-batch."
    )


def limit_phrase(limit: Limit | None) -> str:
    """Return the values that may be searched, as `the values 1, 2` or `4:8`."""
    if limit is None:
        return "what this target and machine allow"
    if limit.values is not None:
        return "the values " + ", ".join(map(str, limit.values))
    return f"{limit.low if limit.low is not None else ''}:{limit.high if limit.high is not None else ''}"


def dividing_phrase(global_batch: int | None) -> str:
    """Return in words which micro-batches a held global batch allows; empty where none is held."""
    return "" if global_batch is None else f" that divides the held global batch {global_batch}"
