"""The tables of the check: what is there, what was not run, and a line for each of the five questions."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten

from benchmarks.answers_check import judging
from benchmarks.answers_check.judging import Finding, Standing, percent
from benchmarks.answers_check.records import Answers, Search, key, values_of
from benchmarks.answers_check.targets import Target
from benchmarks.surfaces.words import described, heading, row

WIDEST = 80  # characters of why a search failed
QUIET = 0.1  # share of the cores: above it others were at work
MARKS = {
    Standing.FAILS: "**no**: ",
    Standing.UNDECIDED: "undecided: ",
    Standing.NOT_RUN: "not run: ",
    Standing.HOLDS: "",
}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One target with all its findings; no answers: nothing was run."""

    target: Target
    answers: Answers
    speed: Finding
    repeats: Finding
    beside_load: Finding
    minimal: Finding
    punctual: Finding
    at_knee: Finding | None  # None: it declares its batch


def judged(target: Target, answers: Answers) -> Judged:
    """Ask all questions about one target."""
    return Judged(
        target=target,
        answers=answers,
        speed=judging.speed(answers, target),
        repeats=judging.repeats(answers, target),
        beside_load=judging.beside_load(answers, target),
        minimal=judging.minimal(answers, target),
        punctual=judging.punctual(answers, target),
        at_knee=judging.at_knee(answers, target),
    )


def lines(targets: Sequence[Target], known: Mapping[str, Answers], searches: int) -> Iterator[str]:
    """All that there is to say; `searches` are wanted of each target in quiet, and one beside a load."""
    all_of = [judged(target, known[target.name]) for target in targets if target.name in known]
    if not all_of:
        yield "Nothing was run yet."
        return
    budgets = sorted({one.answers.budget_seconds for one in all_of})
    yield f"{all_of[0].answers.machine}; time budget {', '.join(f'{each:g} s' for each in budgets)}\n"
    yield heading("target", "quiet answers", "with the load", "(a)", "(b)", "(b), load", "(c)", "(d)", "(e)")
    yield from (_line(one) for one in all_of)
    is_partial = any(_missing(known.get(target.name), searches) for target in targets)
    worths = [line for one in all_of for line in _worths(one)]
    if worths:
        yield from ("", heading("target", "answer", "change", "worth", "its place"), *worths)
    yield from ("", *questions(all_of, targets, is_partial), "")
    yield from _remarks(targets, all_of, known, searches)


def _line(one: Judged) -> str:
    answers, loaded = one.answers, one.answers.loaded
    quiet = [
        f"{sum(key(each.values) == text for each in answers.quiet if each.values)} × {described(values_of(text))}"
        for text in answers.answered
    ]
    quiet += [_told(each) for each in answers.quiet if each.failure]
    cells = (one.speed, one.repeats, one.beside_load, one.minimal, one.punctual)
    return row(
        f"{one.target.name} ({one.target.what})", "; ".join(quiet) or "–", _told(loaded) if loaded else "–",
        *(f"{MARKS[cell.standing]}{cell.text}" for cell in cells),
        "declared" if one.at_knee is None else f"{MARKS[one.at_knee.standing]}{one.at_knee.text}",
    )  # fmt: skip


def _told(search: Search) -> str:
    failed = shorten(f"failed: {search.failure}", WIDEST, placeholder=" ...")
    return failed if search.failure else search.undecided or described(search.values)


def _worths(one: Judged) -> Iterator[str]:
    for change in judging.ablated(one.answers, one.target):
        worth = percent(change.ratio) if change.ratio else change.note or "–"
        place = "kept" if change.is_kept else "dropped"
        verdict = {Standing.HOLDS: f"rightly {place}", Standing.FAILS: f"**wrongly {place}**"}
        yield row(
            one.target.name, described(values_of(change.answer)), change.what, worth,
            verdict.get(change.standing, f"{place}, {change.standing}"),
        )  # fmt: skip


def questions(all_of: Sequence[Judged], targets: Sequence[Target], is_partial: bool) -> Iterator[str]:
    """One line for each; what holds as long as something was not run, holds so far."""
    count, free = len(targets), sum(not target.declares_batch for target in targets)
    spared = count // 8  # seven of eight
    knees = [one.at_knee for one in all_of if one.at_knee is not None]
    asked = (
        ("(a) as fast as the best known (97 % in the median, 93 % always)", _fast(all_of)),
        (
            "(b) the same essential settings, in seven of eight",
            _counted([one.repeats for one in all_of], count, spared),
        ),
        ("(b) beside a load the same, or undecided", _counted([one.beside_load for one in all_of], count)),
        ("(c) every change earns its place, none is missing", _counted([one.minimal for one in all_of], count)),
        ("(d) the budget is kept within 10 %", _counted([one.punctual for one in all_of], count)),
        ("(e) with nothing declared the knee, without accumulation", _counted(knees, free)),
    )
    for question, (standing, numbers) in asked:
        so_far = " so far" if is_partial and standing is Standing.HOLDS else ""
        yield f"{question}: {standing}{so_far}{numbers and f': {numbers}'}"


def _fast(all_of: Sequence[Judged]) -> tuple[Standing, str]:
    """The standing of all searches together, with numbers."""
    shares = [share for one in all_of for share in one.speed.shares]
    if not shares:
        return Standing.NOT_RUN, ""
    median, least = statistics.median(shares), min(shares)
    holds = median >= judging.MEDIAN_SHARE and least >= judging.LEAST_SHARE
    numbers = f"{median:.1%} in the median, {least:.1%} at least, {len(shares)} searches"
    return Standing.HOLDS if holds else Standing.FAILS, numbers


def _counted(findings: Iterable[Finding], targets: int, spared: int = 0) -> tuple[Standing, str]:
    """The standing of all targets together, of which so many may fail, with numbers."""
    standings = [one.standing for one in findings]
    fails, open_ones, hold = (standings.count(each) for each in (Standing.FAILS, Standing.UNDECIDED, Standing.HOLDS))
    missing = targets - fails - open_ones - hold
    if missing == targets:
        return Standing.NOT_RUN, ""
    parts = ((hold, "hold"), (fails, "do not"), (open_ones, "undecided"), (missing, "not run"))
    numbers = f"of {targets} targets {', '.join(f'{count} {word}' for count, word in parts if count)}"
    if fails > spared:
        return Standing.FAILS, numbers
    return Standing.UNDECIDED if fails + open_ones > spared else Standing.HOLDS, numbers


def _remarks(
    targets: Sequence[Target], all_of: Sequence[Judged], known: Mapping[str, Answers], searches: int
) -> Iterator[str]:
    """What was not run, and how quiet it was."""
    for target in targets:
        missing = _missing(known.get(target.name), searches)
        if missing:
            yield f"Not run of {target.name}: {missing}."
    looks = [each.busy for one in all_of for each in one.answers.quiet]
    looks += [each.busy for one in all_of for each in one.answers.rounds]
    disturbed = sum(busy > QUIET for busy in looks)
    if disturbed:
        yield f"Not quiet: others used more than {QUIET:.0%} of the cores before {disturbed} of {len(looks)} looks."
    for one in all_of:
        curve = judging.speeds(one.answers, one.target)
        if curve:
            fastest = max(curve.values())
            points = ", ".join(f"{size}: {speed / fastest:.0%}" for size, speed in curve.items())
            yield f"Curve of {one.target.name}: {points}."


def _missing(answers: Answers | None, searches: int) -> str:
    if answers is None:
        return "anything"
    parts = []
    if len(answers.quiet) < searches:
        parts.append(f"{searches - len(answers.quiet)} of {searches} quiet searches")
    if answers.loaded is None:
        parts.append("the search beside a load")
    if len(answers.rounds) < judging.LEAST_ROUNDS:
        parts.append(
            f"{judging.LEAST_ROUNDS - len(answers.rounds)} of at least {judging.LEAST_ROUNDS} rounds of plain loops"
        )
    return ", ".join(parts)
