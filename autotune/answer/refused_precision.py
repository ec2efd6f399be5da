"""The warning about a precision that was tried and is not recommended, because of its losses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Config, Goal, Value
from autotune.knobs import KNOBS, is_ours
from autotune.precision.arithmetic import contains, names_of, own_arithmetic, precision_of
from autotune.study.history import History
from autotune.study.recommendation import Recommendation
from autotune.study.summary import ConfigSummary, Status
from autotune.study.unstable_baseline import first_broken_step

Refusal = tuple[Mapping[str, Value], Notice]  # the values of an arithmetic, and why it is refused


def with_refused_precisions(
    answer: Recommendation, history: History, candidates: Iterable[ConfigSummary]
) -> Recommendation:
    """Return the answer with a warning for each precision that its losses refuse; `candidates` are those confirmed."""
    usable = [precision_of(one.config) for one in candidates if one.status not in (Status.FAILED, Status.REFUSED)]
    usable.append(precision_of(Config(values=answer.params)))
    goal = history.request.goal
    compared = [(one.values, one.reason) for one in history.loss_verdicts if one.excludes and goal.stability != "off"]
    found = [
        one
        for one in (*compared, *_unstable_in_probes(history))
        if one[0] not in usable and _may_be_searched(one[0], goal)
    ]
    own = own_arithmetic(history.request.facts)
    told = [
        notice(Code.PRECISION_REFUSED, why=why)
        for number, (values, why) in enumerate(found)
        if not _is_covered(values, found[:number], found) and _changes_precision(values, own)
    ]
    return replace(answer, warnings=(*answer.warnings, *told)) if told else answer


def _may_be_searched(values: Mapping[str, Value], goal: Goal) -> bool:
    """Return whether the user's limits allow these values."""
    limits = {name: goal.limits[name].values for name in values if name in goal.limits}
    return all(allowed is None or values[name] in allowed for name, allowed in limits.items())


def _is_covered(values: Mapping[str, Value], before: Collection[Refusal], found: Collection[Refusal]) -> bool:
    """Return whether the refusal of the same arithmetic, or of a part of it, is reported as well."""
    return any(values == other for other, _ in before) or any(
        values != other and contains(values, other) for other, _ in found
    )


def _changes_precision(values: Mapping[str, Value], own: Mapping[str, Value]) -> bool:
    """Return whether a knob of ours differs: what the target declares is no precision, and float32 does not mend it."""
    return any(is_ours(one.name) for one in KNOBS if one.numerics and values[one.name] != own[one.name])


def _unstable_in_probes(history: History) -> Iterator[Refusal]:
    """Yield the arithmetic of probes with losses that are not finite, where all of the user's own are finite.

    Not where as many of its probes have finite losses: a batch of two may be why, and not the arithmetic.
    """
    own = own_arithmetic(history.request.facts)
    measured = [(one, one.trial.result.measurement) for one in history.judged if one.trial.result.measurement]
    usual = [it for one, it in measured if precision_of(one.trial.config) == own]
    if not usual or any(None in it.losses for it in usual):
        return
    for (trial, verdict), it in measured:
        if verdict.reason is not None and verdict.reason.code is Code.UNSTABLE_NOT_FINITE:
            values = precision_of(trial.config)
            alike = [None in other.losses for one, other in measured if precision_of(one.trial.config) == values]
            if 2 * sum(alike) <= len(alike):
                continue
            candidate, reference = names_of(values, own, lambda knob, value: knob.show(value))
            yield values, notice(
                Code.LOSSES_NOT_FINITE, candidate=candidate, reference=reference, broken=it.losses.count(None),
                steps=len(it.losses), first=first_broken_step(it),
            )  # fmt: skip
