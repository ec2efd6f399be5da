"""The gain of each setting, in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from rich.text import Text

from autotune.harmless import cropped, shell_word
from autotune.knobs.parsing import typed
from autotune.report.answer import TITLES, WIDEST_ANSWER, Line, sentences, titled_lines
from autotune.report.changes import brief, label_of
from autotune.report.explain import Explanation, ValueWorth
from autotune.report.gain import NOT_MEASURED, basis_phrase, gain_phrase
from autotune.report.phrases import is_faster, plain, speedup_phrase
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView
from autotune.units import counted

LONGEST_FAILURE = 120  # characters of an error message
SAME = "does nothing here: both train in the same way"


class Note(NamedTuple):
    """One doubt about a recommendation: its text and advice."""

    meaning: str
    next_step: str


def explain_block(found: Explanation, best: Recommendation, view: StudyView, width: int | None) -> Text:
    """Return the explanation for a terminal of `width` characters; None: whole lines, for a file."""
    width = sys.maxsize if width is None else min(width, WIDEST_ANSWER)
    column = max([TITLES - 2, *(2 + len(label_of(one.values)) for one in found.worths)])  # of the labels
    block = Text(f"{plain(sentences(best, view)[0])}\n", "bold")
    changes = [one for one in found.worths if one.is_change]
    others = [one for one in found.worths if not one.is_change]
    for title, worths in (("What each change is worth", changes), ("What was left as it is", others)):
        if worths:
            block.append(f"\n{title}\n", "bold")
        for one in worths:
            for line in _lines(one, best, width - (column - TITLES + 2)):
                block.append(f"  {line.title.ljust(column)}", "bold" if line.title else "").append(f"{line.text}\n")
    if not found.worths:
        block.append("\nNothing was searched: every setting had a single value.\n")
    for note in notes(found, best):
        block.append("\n")
        for line in titled_lines("!", " ".join(note), width, "yellow"):
            block.append(f"  {line.title.ljust(TITLES - 2)}{line.text}\n", line.style)
    if unmeasured(found):
        block.append(f"\n{_next(found)}\n")
    block.right_crop(1)
    return block


def unmeasured(found: Explanation) -> list[ValueWorth]:
    """Return the settings that were not measured and that can have an effect."""
    return sorted((one for one in found.worths if one.is_open), key=lambda one: one.is_accident)  # it may hang again


def notes(found: Explanation, best: Recommendation) -> list[Note]:
    """Return notes on measurements that contradict the recommendation or make it doubtful."""
    told = [*_faster(found), *_unsupported(found, best)]
    if found.with_interference:
        told.append(Note(
            f"{found.with_interference} of {counted(found.probes, 'probe')} of --measure had interference: others used "
            f"the machine, and the factors may be off.",
            f"When it is quiet, remove {shell_word(found.study)}/explain and measure again: autotune explain "
            f"{shell_word(found.study)} --measure.",
        ))  # fmt: skip
    return told


def _faster(found: Explanation) -> Iterator[Note]:
    """Yield a note for each setting that was faster at another value than the recommended one."""
    for one in found.worths:
        gain = one.inside
        if gain is None or gain.by == "estimate" or gain.low is None or gain.high is None:
            continue
        if one.is_change and gain.high < 1:
            what, other = f"{label_of(one.values)} {brief(one.against)}, as in your baseline,", one.against
        elif not one.is_change and gain.low > 1:
            what, other = worth_phrase(one), one.values
        else:
            continue
        values = typed(other)
        yield Note(
            f"{what} measured faster than what is recommended.",
            f"To be sure: autotune race {shell_word(found.study)} --config {shell_word(values)}. If it is, search in a "
            f"new --study with --fix {shell_word(values)}.",
        )


def _unsupported(found: Explanation, best: Recommendation) -> Iterator[Note]:
    """Yield a note if no single change is measurably faster, although all together are."""
    changes = [one for one in found.worths if one.is_change]
    by_rounds = [one.inside for one in changes if one.inside and one.inside.by == "rounds"]
    if not changes or len(by_rounds) < len(changes) or not is_faster(best):
        return
    if all(gain.low is not None and gain.low <= 1 for gain in by_rounds):
        before = typed({name: value for one in changes for name, value in one.against.items()})
        yield Note(
            f"No change measured faster by itself, though together they did: {speedup_phrase(best)}. Either one makes "
            f"up for another, or something slowed one of the measurements.",
            f"To be sure: autotune race {shell_word(found.study)} --config {shell_word(before)}.",
        )


def _next(found: Explanation) -> str:
    count = len(unmeasured(found))
    return (
        f"{counted(count, 'setting')} {'was' if count == 1 else 'were'} not measured in the recommendation: "
        f"autotune explain {shell_word(found.study)} --measure measures {'it' if count == 1 else 'them'}."
    )


def _lines(one: ValueWorth, best: Recommendation, width: int) -> Iterator[Line]:
    first, *rest = sentences_of(one, best)
    yield from titled_lines(label_of(one.values), f"{_moved(one)}: {first}", width)
    for text in rest:
        yield from titled_lines("", text, width)


def worth_phrase(one: ValueWorth) -> str:
    """Return `precision fp32 → bf16` of a change, else `threads 1 instead of auto`."""
    return f"{label_of(one.values)} {_moved(one)}"


def _moved(one: ValueWorth) -> str:
    if one.is_change:
        return f"{brief(one.against)} → {brief(one.values)}"
    return f"{brief(one.values)} instead of {brief(one.against)}"


def sentences_of(one: ValueWorth, best: Recommendation) -> list[str]:
    """Return sentences on the setting: its gain in the recommendation, and alone if that differs."""
    if one.is_same:
        return [SAME]
    found = []
    if one.inside:
        found.append(gain_phrase(one.inside, best.goal))
    elif one.failure:
        why = cropped(plain(one.failure.partition(chr(10))[0]), LONGEST_FAILURE)
        found.append(f"{NOT_MEASURED}: {why}; --measure tries it again" if one.is_accident else f"does not run: {why}")
    if one.alone and one.alone != one.inside:
        found.append(f"alone, on your baseline: {gain_phrase(one.alone, best.goal)}")
    if not found and one.estimate:
        found.append(f"{gain_phrase(one.estimate, best.goal)}, by {basis_phrase(one.estimate)}")
    why = "" if one.untested.startswith(NOT_MEASURED) else one.untested.partition("\n")[0].rstrip(".")
    return found or [f"{NOT_MEASURED}: {why}" if why else NOT_MEASURED]
