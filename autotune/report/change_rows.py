"""The changes of an answer, today and tuned, with their gains: the same rows on page, card and in Markdown."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.report.changes import changes_of, value_of, worth
from autotune.report.essentials import values_besides
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView, facts_of


@dataclass(frozen=True, kw_only=True)
class ChangeRow:
    """One change of the answer: the setting, its value before and after, and its gain, as text."""

    name: str  # of the knob, as in the dict
    today: str
    tuned: str
    worth: str


def change_rows(best: Recommendation, view: StudyView | None) -> list[ChangeRow]:
    """Return the changes that the answer makes, in the order in which they are shown."""
    return [
        ChangeRow(
            name=next(iter(one.values)),
            today=value_of(one.before),
            tuned=value_of(one.values),
            worth=worth(one, best),
        )
        for one in changes_of(best, view)
        if one.kept
    ]


def unchanged_values(best: Recommendation, view: StudyView | None) -> str:
    """Return the settings that stay: `batch_size 64 × 1 · no loader workers`."""
    changed = [name for one in changes_of(best, view) if one.kept for name in one.values]
    return values_besides(best, changed, facts_of(best, view))
