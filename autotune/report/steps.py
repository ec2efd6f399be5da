"""The steps from the baseline to the recommendation in words: what each changed, what it gained, and the evidence."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.core.records import Config
from autotune.knobs import KNOBS
from autotune.report.phrases import is_faster, short, shown
from autotune.study.recommendation import Recommendation
from autotune.study.summary import ConfigSummary
from autotune.study.view import StudyView, summaries
from autotune.tuning.ablation import HELD_TOGETHER, AblationStep, changes_between, missing, steps
from autotune.units import counted, format_rate, format_share, rounded

LONGEST_PADDED = 60  # a longer text must not push the next column off the screen
NOT_SIGNIFICANT = " (not significant)"
UNKNOWN_SPREAD = 0.02  # where a spread is not known: that of one probe on a quiet machine


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """One step in words; the first one is the baseline, and has no gain."""

    step: AblationStep
    change: str  # `precision fp32 → bf16`
    labels: str  # the same without values: `precision`
    rate: str
    gain: str  # `(+320)`, in samples/s; `(not significant)` where it is less than the two rates are uncertain
    evidence: str


def step_rows(view: StudyView) -> tuple[StepRow, ...]:
    """Every step, the baseline first; empty where no measured step leads to the recommendation."""
    way = steps(view)
    return tuple(
        StepRow(
            step=step,
            change=_change(step, way[0]),
            labels=" + ".join(knob.label for knob in KNOBS if knob.name in step.changed),
            rate=format_rate(step.summary.samples_per_second),
            gain=_gain(way, index),
            evidence=_evidence(step),
        )
        for index, step in enumerate(way)
        if len(way) > 1
    )


def verdict(view: StudyView) -> str:
    """How much of the way was measured one change at a time, in a sentence or two."""
    way, lacking = steps(view)[1:], len(missing(view))
    apart = sum(step.changes == 1 for step in way)
    if apart == len(way):
        return "Every step is one change, measured."
    joint = len(way) - apart
    more = f"{counted(lacking, 'more probe')} would show it" if lacking else "what lies between could not be used"
    return (
        f"Measured one change at a time: {apart} of {counted(len(way), 'step')}. {joint} made several "
        f"changes at once: how {'its' if joint == 1 else 'their'} gain divides was not measured ({more})."
    )


def step_lines(view: StudyView) -> list[str]:
    """Return each step with its gain in samples/s, and how much of that was measured; empty without steps."""
    way = step_rows(view)
    if not way:
        return []
    width = max((len(one.change) for one in way if len(one.change) <= LONGEST_PADDED), default=0)
    together = {True: "   together, not one by one", False: ""}
    return [
        *(
            f"{one.change.ljust(width)}   {one.rate} {one.gain or 'samples/s'}{together[one.step.changes > 1]}"
            for one in way
        ),
        verdict(view),
    ]


def worths(best: Recommendation, view: StudyView | None) -> dict[tuple[str, ...], str]:
    """Return what each change between baseline and recommendation is worth in samples/s, as far as it was measured.

    By the recommendation without it, if that was measured; else by the step that made this change alone.
    """
    groups = changes_between(best.baseline, best.params)
    if len(groups) == 1 and best.speedup:  # without it is the baseline, and the race knows it best
        doubt = "" if is_faster(best) else NOT_SIGNIFICANT
        return {groups[0]: f"without it {_slower(1 / best.speedup)}{doubt}"}
    measured = {one.config: one for one in summaries(view) if one.feasible} if view else {}
    alone = {
        changes_between(one.summary.config.values, other.summary.config.values)[0]: (one.summary, other.summary)
        for one, other in itertools.pairwise(steps(view) if view else ())
        if other.changes == 1
    }
    return {group: _worth(group, best, measured, alone) if view else "" for group in groups}


def _worth(
    group: tuple[str, ...], best: Recommendation, measured: Mapping[Config, ConfigSummary],
    alone: Mapping[tuple[str, ...], tuple[ConfigSummary, ConfigSummary]],
) -> str:  # fmt: skip
    own = measured.get(Config(values=dict(best.params)))
    reverted = measured.get(Config(values={**best.params, **{name: best.baseline[name] for name in group}}))
    if own and reverted:
        doubt = "" if _differs(own, reverted) else NOT_SIGNIFICANT
        return f"without it {_slower(reverted.samples_per_second / own.samples_per_second)}{doubt}"
    if group not in alone:
        return "not measured alone"
    before, after = alone[group]
    others = len(changes_between(after.config.values, best.params))
    gain = after.samples_per_second / before.samples_per_second - 1
    doubt = "" if _differs(before, after) else NOT_SIGNIFICANT
    did = f"{'added' if gain > 0 else 'cost'} {format_share(abs(gain))}"
    return f"{did} before {counted(others, 'other change')}{doubt}"


def _slower(ratio: float) -> str:
    return f"{format_share(1 - ratio)} slower" if ratio < 1 else f"{format_share(ratio - 1)} faster"


def _differs(one: ConfigSummary, other: ConfigSummary) -> bool:
    """Whether two rates differ by more than they are uncertain."""
    widths = [UNKNOWN_SPREAD if it.relative_half_width is None else it.relative_half_width for it in (one, other)]
    spread = sum((w * it.samples_per_second) ** 2 for w, it in zip(widths, (one, other), strict=True)) ** 0.5
    return bool(abs(other.samples_per_second - one.samples_per_second) > spread)


def _change(step: AblationStep, first: AblationStep) -> str:
    """`precision fp32 → bf16`; the knobs of a joint step with a plus between them."""
    values, before = step.summary.config.values, first.summary.config.values
    if not step.changed:
        return f"baseline: {short(values)}"
    parts = []
    held = [knob for knob in KNOBS if knob.name in HELD_TOGETHER]
    if set(step.changed) & set(HELD_TOGETHER):
        parts.append(
            "batch "
            + " → ".join("×".join(shown(knob, one).removeprefix("×") for knob in held) for one in (before, values))
        )
    for knob in KNOBS:
        if knob.name in step.changed and knob.name not in HELD_TOGETHER:
            parts.append(f"{knob.label} {shown(knob, before)} → {shown(knob, values)}")
    return " + ".join(parts)


def _gain(way: Sequence[AblationStep], index: int) -> str:
    if index == 0:
        return ""
    one, other = way[index - 1].summary, way[index].summary
    change = other.samples_per_second - one.samples_per_second
    if not _differs(one, other):
        return NOT_SIGNIFICANT.strip()
    apart = abs(rounded(other.samples_per_second) - rounded(one.samples_per_second))  # as the two are shown
    return f"({'+' if change > 0 else '–'}{rounded(apart):,.10g})"


def _evidence(step: AblationStep) -> str:
    measured = f"measured in {counted(len(step.summary.measured), 'probe')}"
    return measured if step.changes < 2 else f"{measured}, together only"
