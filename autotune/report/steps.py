"""The steps from the baseline to the recommendation in words: what each changed, what it gained, and the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.knobs import KNOBS
from autotune.report.phrases import short, shown
from autotune.study.view import StudyView
from autotune.tuning.ablation import HELD_TOGETHER, AblationStep, missing, steps
from autotune.units import counted, format_rate, rounded

UNKNOWN_SPREAD = 0.02  # where a spread is not known: that of one probe on a quiet machine


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """One step in words; the first one is the baseline, and has no gain."""

    step: AblationStep
    change: str  # `precision fp32 → bf16`
    labels: str  # the same without values: `precision`
    rate: str
    gain: str  # `(+320)`, in samples/s; `(noise)` where it is less than the two rates are uncertain
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
    widths = [UNKNOWN_SPREAD if it.relative_half_width is None else it.relative_half_width for it in (one, other)]
    spread = sum((w * it.samples_per_second) ** 2 for w, it in zip(widths, (one, other), strict=True)) ** 0.5
    if abs(change) <= spread:
        return "(noise)"
    apart = abs(rounded(other.samples_per_second) - rounded(one.samples_per_second))  # as the two are shown
    return f"({'+' if change > 0 else '–'}{rounded(apart):,.10g})"


def _evidence(step: AblationStep) -> str:
    measured = f"measured in {counted(len(step.summary.measured), 'probe')}"
    return measured if step.changes < 2 else f"{measured}, together only"
