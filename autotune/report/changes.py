"""The changes of an answer and their gains, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import field

from autotune.core.codes import UNMEASURED, Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Record, Value
from autotune.harmless import plain
from autotune.knobs import KNOBS, knob
from autotune.knobs.changes import BATCH_KNOBS, changes_between
from autotune.objectives import objective_of
from autotune.report.explain import Evidence, canonical_for
from autotune.report.gain import NOT_MEASURED, Gain, gain_of, gain_of_answer, gain_phrase
from autotune.report.nearby_pairs import Nearby, NearbyPairs
from autotune.study.recommendation import Change, Recommendation
from autotune.study.shown import shown_value
from autotune.study.view import StudyView
from autotune.units import format_share

LEAST_MEMORY = 0.005  # least share of the peak that is shown: less rounds to 0%


class ChangeWorth(Record, frozen=True, kw_only=True):
    """One change from the baseline to the winner of the confirmation, and its gain."""

    values: dict[str, Value]  # the winner's, of the knobs that move together
    before: dict[str, Value]  # the baseline's
    kept: bool  # the recommendation makes it
    gain: Gain | None  # speed with it over speed without it; None: not known
    nearby: Nearby | None = None  # the same beside other settings, where nothing else is known
    # Settings of the answer that cannot stay without it: the gain is that of all.
    going_with: dict[str, Value] = field(default_factory=dict)
    untested: Notice | None = None  # why it was not measured in rounds
    reason: Notice | None = None  # why it is kept although rounds do not show its gain
    memory_ratio: float | None = None  # memory with it, over that without it


def changes_of(best: Recommendation, view: StudyView | None) -> tuple[ChangeWorth, ...]:
    """Return the changes from the baseline; dropped changes come last.

    Without the probes of the study, they come from `best.json` only.
    """
    if best.changes is not None:
        known = (one for one in best.changes if set(one.values) <= {knob.name for knob in KNOBS})
        made = sorted(known, key=lambda one: not one.kept)
    else:
        made = list(_earlier(best, view))
    gain = gain_of_answer(best)
    whole = [one for one in made if gain and one.kept and _is_whole(one, best, view)]
    # `best.json` has the rounds of the search: all else must be looked for among the probes, which takes a while.
    is_open = any(one.kept and one not in whole and (one.ratio is None or one.untested) for one in made)
    evidence = Evidence(view, best) if view and is_open else None
    pairs = NearbyPairs(view, best) if view and is_open else None
    return tuple(
        _worth_of(one, gain if one in whole else None, evidence, pairs, _going_with(one, best, view)) for one in made
    )


def _is_whole(one: Change, best: Recommendation, view: StudyView | None) -> bool:
    """Return whether the answer without this change is the baseline, so that both gain the same."""
    values = {**best.params, **one.before}
    if view is None:
        return values == best.baseline
    return canonical_for(view.request, values) == canonical_for(view.request, best.baseline)


def _going_with(one: Change, best: Recommendation, view: StudyView | None) -> dict[str, Value]:
    """Return the other settings of the answer that cannot stay without this change, such as a kernel of its dtype."""
    if view is None or not one.kept or not set(one.values) <= set(best.params):
        return {}
    answer, without = (canonical_for(view.request, {**best.params, **values}) for values in ({}, one.before))
    others = {name: value for name, value in answer.values.items() if name not in one.values}
    return {name: value for name, value in others.items() if value != without.values.get(name)}


def _worth_of(
    one: Change, whole: Gain | None, evidence: Evidence | None, pairs: NearbyPairs | None,
    going_with: dict[str, Value],
) -> ChangeWorth:  # fmt: skip
    """Return what the change gains. `whole` is the gain of the answer, if the change is all that it makes.

    Its own gain may then have been measured beside changes that were dropped.
    """
    found = evidence.of_change(tuple(one.values)) if evidence and one.kept and not whole else None
    gain = whole or (found.inside if found else None) or gain_of(one)
    is_open = gain is None and (one.untested is None or one.untested.code in UNMEASURED)
    is_told = is_open and pairs and found and evidence and not evidence.failure(evidence.rival(found))[0]
    return ChangeWorth(
        values=one.values, before=one.before, kept=one.kept, gain=gain, going_with=going_with,
        nearby=pairs.gain(one) if pairs and is_told else None, untested=one.untested,
        reason=None if whole and whole.low and whole.low > 1 else one.reason,
        memory_ratio=one.memory_ratio and 1 / one.memory_ratio,
    )  # fmt: skip


def _earlier(best: Recommendation, view: StudyView | None) -> Iterator[Change]:
    """Yield the changes if there was no ablation, or the study is of a version without one."""
    untested = notice(Code.CHANGE_NOT_YET_MEASURED if view and view.running else Code.CHANGE_NOT_ALONE)
    for names in changes_between(best.baseline, best.params):
        values, before = ({name: of.get(name) for name in names} for of in (best.params, best.baseline))
        yield Change(values=values, before=before, kept=True, untested=untested)


def worth(change: ChangeWorth, best: Recommendation) -> str:
    """Return `1.58× faster (1.34 to 1.87)`, the speed with the change over that without; or why it is not known.

    If rounds do not show why it is kept, the reason follows.
    """
    reason = f"; {plain(change.reason.meaning)}" if change.reason else ""
    if change.gain is None and change.nearby:
        beside = (f", beside {label_of(values)} {brief(values)}" for values in change.nearby.beside)
        where = ", alone" if change.nearby.is_alone else "".join(beside)
        return f"{gain_phrase(change.nearby.gain, best.goal)}{where}{reason}"
    if change.gain is None:
        why = plain(change.untested.text.partition("\n")[0].rstrip(".")) if change.untested else ""
        return (why if why.startswith(NOT_MEASURED) else f"{NOT_MEASURED}: {why}") + reason
    text, memory = gain_phrase(change.gain, best.goal), change.memory_ratio or 1.0
    if objective_of(best.goal).slack(best.goal) is not None and abs(1 - memory) >= LEAST_MEMORY:
        text += f", {format_share(abs(1 - memory))} {'more' if memory > 1 else 'less'} memory"
    others = ", ".join(f"{name} {value_of({name: value})}" for name, value in change.going_with.items())
    return text + (f", together with {others}" if others else "") + reason


def change_phrase(change: ChangeWorth) -> str:
    """Return `precision fp32 → bf16`, `batch 64×16 → 1024×1`."""
    return f"{label_of(change.values)} {brief(change.before)} → {brief(change.values)}"


def label_of(values: Mapping[str, Value]) -> str:
    """Return the name of the changed setting: `precision`, `batch`."""
    return "batch" if set(values) == set(BATCH_KNOBS) else plain(knob(next(iter(values))).label)


def value_of(values: Mapping[str, Value]) -> str:
    """Return the value of one change as in the dict, `bfloat16`; the batch with its accumulation, `32 × 2`."""
    if set(values) == set(BATCH_KNOBS):
        return " × ".join(plain(str(value)) for value in values.values())
    ((name, value),) = values.items()
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown_value(knob(name), values) if value is None else plain(str(value))


def brief(values: Mapping[str, Value]) -> str:
    """Return the values as in the table of probes: `bf16`, `64×16`."""
    return "×".join(shown_value(knob(name), values).removeprefix("×") for name in values)


def worth_lines(best: Recommendation, view: StudyView | None) -> list[str]:
    """Return a line for each change: its gain, and whether it was dropped."""
    return [
        f"{'' if one.kept else 'dropped: '}{change_phrase(one)}: {worth(one, best)}" for one in changes_of(best, view)
    ]
