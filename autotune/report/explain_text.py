"""What each setting is worth, in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.text import Text

from autotune.core.records import Value
from autotune.harmless import cropped
from autotune.knobs import knob
from autotune.knobs.changes import HELD_TOGETHER
from autotune.objectives import objective_of
from autotune.report import phrases
from autotune.report.answer import TITLES, WIDEST, Line, sentences, titled
from autotune.report.changes import value_of
from autotune.report.estimate import Gain
from autotune.report.explain import Explanation, SettingWorth
from autotune.report.phrases import plain
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView
from autotune.tuning.choice import TIE
from autotune.units import counted

LONGEST_REASON = 120  # characters of an error message
BASES = {"rounds": "in interleaved rounds", "probes": "by single probes"}
NOT_MEASURED = "was not measured"


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
    first, *rest = _sentences(one, best)
    yield from titled(label_of(one.values), f"{_moved(one)}: {first}", width)
    for text in rest:
        yield from titled("", text, width)


def label_of(values: dict[str, Value]) -> str:
    """Return `precision`, or `batch`."""
    return "batch" if tuple(values) == HELD_TOGETHER else plain(knob(next(iter(values))).label)


def _moved(one: SettingWorth) -> str:
    if one.is_change:
        return f"{value_of(one.against)} → {value_of(one.values)}"
    return f"{value_of(one.values)} instead of {value_of(one.against)}"


def _sentences(one: SettingWorth, best: Recommendation) -> list[str]:
    if one.is_same:
        return ["does nothing here: both train in the same way"]
    found = []
    if one.inside:
        found.append(worth_phrase(one.inside, best))
    elif one.failure:
        found.append(f"does not run: {cropped(plain(one.failure.partition(chr(10))[0]), LONGEST_REASON)}")
    if one.alone and one.alone != one.inside:
        found.append(f"alone, beside your baseline: {worth_phrase(one.alone, best)}")
    if not found and one.estimate:
        found.append(worth_phrase(one.estimate, best))
    return found or [NOT_MEASURED]


def worth_phrase(gain: Gain, best: Recommendation) -> str:
    """Return `faster, 1.35× (1.20 to 1.52), in interleaved rounds`."""
    objective = objective_of(best.goal)
    factor = phrases.factor_phrase(gain.ratio, gain.low, gain.high)
    if gain.by == "estimate":
        share = f"{abs(gain.ratio - 1):.0%}"
        word = objective.better if gain.ratio > 1 else objective.worse
        told = f"about {share} {word}" if abs(gain.ratio - 1) > TIE else "to do about nothing"
        by = "1 probe that differs" if gain.count == 1 else f"{gain.count} probes that differ"
        return f"not measured; estimated {told} ({gain.low:.2f} to {gain.high:.2f}), by {by} in other settings too"
    return f"{_verdict(gain, factor, objective.better, objective.worse)}, {BASES[gain.by]}"


def _verdict(gain: Gain, factor: str, better: str, worse: str) -> str:
    low, high = gain.low, gain.high
    if low is None or high is None:
        return f"{factor}, without an interval"
    if low > 1 - TIE and high < 1 + TIE:
        return f"does nothing here: {factor}"
    if low > 1:
        return f"{better}, {factor}"
    if high < 1:
        return f"{worse}, {factor}"
    return f"undecided, {factor}"
