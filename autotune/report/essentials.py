"""Chooses the values that an answer names: those that always matter, and those that differ from torch's defaults."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.records import TargetFacts, Value
from autotune.knobs import KNOBS
from autotune.knobs.changes import BATCH_KNOBS
from autotune.report.phrases import phrases_of
from autotune.study.recommendation import Recommendation

ALL_ELSE = "all else as it is"


def values_besides(recommendation: Recommendation, changed: Sequence[str], facts: TargetFacts | None) -> str:
    """Return the values that stay as in the baseline: `batch_size 64 × 1 · no loader workers · all else as it is`.

    Named are values that people always set, and values that are not torch's defaults. Workers are left out if, by
    `facts`, the target does not let them be chosen: their number is then unknown. Empty if no value is named.
    """
    has_workers = facts is None or facts.tunes_workers
    values = recommendation.params
    same = [knob for knob in KNOBS if knob.name not in changed and (has_workers or not knob.counts_workers)]
    batch = " × ".join(str(values.get(name)) for name in BATCH_KNOBS)
    parts = [] if set(changed) & set(BATCH_KNOBS) else [f"batch_size {batch}"]
    named = [*parts, *phrases_of(values, same)]
    return " · ".join([*named, ALL_ELSE]) if named else ""


def essential(recommendation: Recommendation) -> tuple[dict[str, Value], list[str]]:
    """Return the values that matter, and the names of the other knobs: they have torch's and the baseline's value.

    Values that people always set matter in any case: the global batch, the precision, the workers, their own knobs.
    """
    values, names = recommendation.params, []
    for knob in KNOBS:
        value, before = (of.get(knob.name, knob.default) for of in (values, recommendation.baseline))
        if knob.name in values and knob.name not in BATCH_KNOBS and value == before and not phrases_of(values, [knob]):
            names.append(knob.name)
    return {name: value for name, value in values.items() if name not in names}, names
