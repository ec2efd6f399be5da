"""What each setting is worth, in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.text import Text

from autotune.harmless import cropped
from autotune.report.answer import TITLES, WIDEST, Line, sentences, titled
from autotune.report.changes import brief, label_of
from autotune.report.explain import Explanation, SettingWorth
from autotune.report.gain import NOT_MEASURED, basis_phrase, gain_phrase
from autotune.report.phrases import plain
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView
from autotune.units import counted

LONGEST_REASON = 120  # characters of an error message
SAME = "does nothing here: both train in the same way"


def explain_block(found: Explanation, best: Recommendation, view: StudyView, width: int | None) -> Text:
    """Return all of it for a terminal of `width` characters; None: whole lines, for a file."""
    width = sys.maxsize if width is None else min(width, WIDEST)
    block = Text(f"{plain(sentences(best, view)[0])}\n", "bold")
    changes = [one for one in found.settings if one.is_change]
    others = [one for one in found.settings if not one.is_change]
    for title, settings in (("What each change is worth", changes), ("What was left as it is", others)):
        if settings:
            block.append(f"\n{title}\n", "bold")
        for one in settings:
            for line in _lines(one, best, width):
                block.append(f"  {line.title.ljust(TITLES - 2)}", "bold" if line.title else "").append(f"{line.text}\n")
    if not found.settings:
        block.append("\nNothing was searched: every setting had a single value.\n")
    if unmeasured(found):
        block.append(f"\n{_next(found)}\n")
    block.right_crop(1)
    return block


def unmeasured(found: Explanation) -> list[SettingWorth]:
    """Return the settings of which nothing was measured, and which can do something."""
    return [one for one in found.settings if not (one.inside or one.is_same or one.failure)]


def _next(found: Explanation) -> str:
    count = len(unmeasured(found))
    return (
        f"{counted(count, 'setting')} {'was' if count == 1 else 'were'} not measured in the recommendation: "
        f"autotune explain {found.study} --measure measures {'it' if count == 1 else 'them'}."
    )


def _lines(one: SettingWorth, best: Recommendation, width: int) -> Iterator[Line]:
    first, *rest = sentences_of(one, best)
    yield from titled(label_of(one.values), f"{_moved(one)}: {first}", width)
    for text in rest:
        yield from titled("", text, width)


def setting_phrase(one: SettingWorth) -> str:
    """Return `precision fp32 → bf16` of a change, else `threads 1 instead of auto`."""
    return f"{label_of(one.values)} {_moved(one)}"


def _moved(one: SettingWorth) -> str:
    if one.is_change:
        return f"{brief(one.against)} → {brief(one.values)}"
    return f"{brief(one.values)} instead of {brief(one.against)}"


def sentences_of(one: SettingWorth, best: Recommendation) -> list[str]:
    """Return what is known of the setting: in the recommendation, and alone where that is another question."""
    if one.is_same:
        return [SAME]
    found = []
    if one.inside:
        found.append(gain_phrase(one.inside, best.goal))
    elif one.failure:
        found.append(f"does not run: {cropped(plain(one.failure.partition(chr(10))[0]), LONGEST_REASON)}")
    if one.alone and one.alone != one.inside:
        found.append(f"alone, beside your baseline: {gain_phrase(one.alone, best.goal)}")
    if not found and one.estimate:
        found.append(f"{gain_phrase(one.estimate, best.goal)}, by {basis_phrase(one.estimate)}")
    why = "" if one.untested.startswith(NOT_MEASURED) else one.untested.partition("\n")[0].rstrip(".")
    return found or [f"{NOT_MEASURED}: {why}" if why else NOT_MEASURED]
