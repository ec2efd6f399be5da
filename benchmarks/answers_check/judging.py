"""The five questions to the answers, (a) to (e), each judged for one target from its searches and plain loops.

A ratio is that of interleaved rounds with its 95 % interval (`Rounds.ratio`). Fewer than `LEAST_ROUNDS` say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from autotune.core.rounds import Rounds
from autotune.knobs import knob
from benchmarks.answers_check import changes
from benchmarks.answers_check.records import Answers, Died, Search, key, values_of
from benchmarks.answers_check.targets import Target

LEAST_ROUNDS = 3
WORTH = 1.02  # what a change must be worth; the rest of the limits:
MEDIAN_SHARE, LEAST_SHARE = 0.97, 0.93  # of the best known
KNEE = 0.95  # of the fastest batch of the curve
LATE = 1.10  # of the time budget


class Standing(StrEnum):
    """What became of a question."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided"  # enough rounds, and their interval holds both answers
    NOT_RUN = "not run"


ORDER = (Standing.FAILS, Standing.UNDECIDED, Standing.NOT_RUN, Standing.HOLDS)  # the first of them that there is


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The answer to one question about one target."""

    standing: Standing
    text: str
    shares: tuple[float, ...] = ()  # of question (a)


@dataclass(frozen=True, kw_only=True)
class Change:
    """What one change of one answer is worth by itself."""

    answer: str
    what: str
    is_kept: bool  # else a rival makes it and the answer does not
    ratio: tuple[float, float, float] | None  # with it over without it: estimate, low, high; None: see `note`
    standing: Standing
    note: str = ""


class Loops:
    """Plain loops of all rounds, compared."""

    def __init__(self, answers: Answers) -> None:
        self.died = {
            config: rate for one in answers.rounds for config, rate in one.rates.items() if isinstance(rate, Died)
        }
        ran = dict.fromkeys(config for one in answers.rounds for config in one.rates if config not in self.died)
        self._places = {config: place for place, config in enumerate(ran)}
        table = [[self._rate(one.rates.get(config)) for one in answers.rounds] for config in ran]
        self._rounds = Rounds(table) if table else None

    def ratio(self, one: str, other: str) -> tuple[float, float, float] | None:
        """How many times as fast `one` is: estimate, low, high. None if one died or they met in too few rounds."""
        if one == other:
            return 1.0, 1.0, 1.0
        if self._rounds is None or not {one, other} <= set(self._places):
            return None
        places = self._places[one], self._places[other]
        return self._rounds.ratio(*places) if self._rounds.count(*places) >= LEAST_ROUNDS else None

    @staticmethod
    def _rate(found: float | Died | None) -> float | None:
        return None if isinstance(found, Died) else found


def worst(standings: Sequence[Standing]) -> Standing:
    """What several come to."""
    return next((one for one in ORDER if one in standings), Standing.NOT_RUN)


def speed(answers: Answers, target: Target) -> Finding:
    """Judge (a), whether every quiet answer is as fast as the best known.

    The best known is the fastest in the rounds among all answers and `rivals`, at the same global batch. It is the
    fastest of several that are known to a few per cent, so that shares err downwards.
    """
    loops, shares, told = Loops(answers), [], []
    for search in answers.quiet:
        share = 0.0 if search.failure else _share(loops, key(search.values), answers, target)
        told.append("failed" if search.failure else "–" if share is None else f"{share:.1%}")
        shares += [] if share is None else [share]
    complete = bool(shares) and len(shares) == len(answers.quiet)
    fails = any(share < LEAST_SHARE for share in shares)
    standing = Standing.FAILS if fails else Standing.HOLDS if complete else Standing.NOT_RUN
    return Finding(standing=standing, text=", ".join(told) or "–", shares=tuple(shares))


def _share(loops: Loops, answer: str, answers: Answers, target: Target) -> float | None:
    if answer in loops.died:
        return 0.0
    others = {*changes.rivals(answer, answers, target), *answers.answered} - {answer} - set(loops.died)
    alike = [other for other in others if changes.samples(other) == changes.samples(answer)]
    ratios = [loops.ratio(answer, other) for other in alike]
    if not all(ratios) or not answers.rounds:
        return None
    return min([1.0, *(ratio[0] for ratio in ratios if ratio)])


def repeats(answers: Answers, target: Target) -> Finding:
    """Judge (b), whether all quiet searches have the same essential settings.

    Two answers have, where micro-batches and global batches lie within a power of two, and no other setting in which
    they differ is essential: put in place of the first answer's, the other's value changes the rate by at most 2 %.
    """
    if any(search.failure for search in answers.quiet):
        return Finding(standing=Standing.FAILS, text="a search failed")
    if len(answers.quiet) < 2:
        return Finding(standing=Standing.NOT_RUN, text=f"{len(answers.quiet)} searched")
    first, *others = answers.answered
    loops = Loops(answers)
    found = [_same(loops, first, other) for other in others]
    told = [one.text for one in found if one.standing is not Standing.HOLDS]
    same = f"{len(answers.quiet)} alike" + (", in what matters" if others else "")
    return Finding(standing=worst([Standing.HOLDS, *(one.standing for one in found)]), text="; ".join(told) or same)


def beside_load(answers: Answers, target: Target) -> Finding:
    """Judge (b) beside a load: essentially the first quiet answer, or undecided."""
    search = answers.loaded
    if search is None or not answers.answered:
        return Finding(standing=Standing.NOT_RUN, text="–")
    if search.failure:
        return Finding(standing=Standing.FAILS, text="failed")
    if search.undecided:
        return Finding(standing=Standing.HOLDS, text="undecided")
    same = _same(Loops(answers), answers.answered[0], key(search.values))
    return same if same.text else Finding(standing=same.standing, text="same")


def _same(loops: Loops, one: str, other: str) -> Finding:
    """Whether two answers have the same essential settings; the text names what differs."""
    standings, told = [Standing.HOLDS], []
    if not changes.is_near(one, other):
        standings.append(Standing.FAILS)
        told.append(f"{shown(one, changes.BATCH)} or {shown(other, changes.BATCH)}")
    for group, config in changes.swapped(one, other).items():
        name = f"{shown(one, group)} or {shown(other, group)}"
        ratio = loops.ratio(config, one)
        if config in loops.died:
            standing, note = Standing.FAILS, "does not run here"
        elif ratio is None:
            standing, note = Standing.NOT_RUN, "not measured"
        else:
            estimate, low, high = ratio
            matters = max(estimate, 1 / estimate) > WORTH
            clear = low > 1 or high < 1
            standing = (Standing.FAILS if clear else Standing.UNDECIDED) if matters else Standing.HOLDS
            note = percent(ratio)
        standings.append(standing)
        told += [] if standing is Standing.HOLDS else [f"{name} ({note})"]
    return Finding(standing=worst(standings), text="; ".join(told))


def ablated(answers: Answers, target: Target) -> list[Change]:
    """Judge, for (c), each change of each quiet answer, and those that its rivals make and it does not.

    Kept changes hold if they are measurably worth something, and fail if that is below 2 % and not measurable. Others
    fail if they are worth more than 2 %, measurably. What is above 2 % and not measurable is undecided.
    """
    loops, found = Loops(answers), []
    for answer in answers.answered:
        for group, config in changes.reverted(answer, answers.baseline).items():
            found.append(_kept(loops, answer, group, config))
        for group, config in changes.added(answer, answers, target).items():
            found.append(_missing(loops, answer, group, config))
    return found


def _kept(loops: Loops, answer: str, group: tuple[str, ...], without: str) -> Change:
    ratio, standing, note = loops.ratio(answer, without), Standing.NOT_RUN, ""
    if without in loops.died:
        standing, note = Standing.HOLDS, f"does not run without: {loops.died[without]}"
    elif ratio:
        estimate, low, _ = ratio
        standing = Standing.HOLDS if low > 1 else Standing.FAILS if estimate < WORTH else Standing.UNDECIDED
    return Change(
        answer=answer, what=f"{shown(answer, group)}, not {shown(without, group)}", is_kept=True, ratio=ratio,
        standing=standing, note=note,
    )  # fmt: skip


def _missing(loops: Loops, answer: str, group: tuple[str, ...], changed: str) -> Change:
    ratio, standing, note = loops.ratio(changed, answer), Standing.NOT_RUN, ""
    if changed in loops.died:
        standing, note = Standing.HOLDS, f"does not run with it: {loops.died[changed]}"
    elif ratio:
        estimate, low, _ = ratio
        standing = Standing.HOLDS if estimate <= WORTH else Standing.FAILS if low > 1 else Standing.UNDECIDED
    return Change(
        answer=answer, what=f"{shown(changed, group)}, not {shown(answer, group)}", is_kept=False, ratio=ratio,
        standing=standing, note=note,
    )  # fmt: skip


def minimal(answers: Answers, target: Target) -> Finding:
    """Judge (c), whether every change earns its place and none is missing."""
    found = ablated(answers, target)
    if not answers.answered or not answers.rounds:
        return Finding(standing=Standing.NOT_RUN, text="–")
    kept, dropped = [one for one in found if one.is_kept], [one for one in found if not one.is_kept]
    text = f"{_holding(kept)} kept, {_holding(dropped)} dropped"
    return Finding(standing=worst([Standing.HOLDS, *(one.standing for one in found)]), text=text)


def _holding(found: Sequence[Change]) -> str:
    return f"{sum(one.standing is Standing.HOLDS for one in found)} of {len(found)}"


def punctual(answers: Answers, target: Target) -> Finding:
    """Judge (d), the wall time of the whole command; less than the budget is no fault."""
    if not answers.searches:
        return Finding(standing=Standing.NOT_RUN, text="–")
    late = [one for one in answers.searches if one.seconds > LATE * answers.budget_seconds]
    text = ", ".join(f"{one.seconds:.0f}{' (load)' if one.beside_load else ''}" for one in answers.searches)
    return Finding(standing=Standing.FAILS if late else Standing.HOLDS, text=f"{text} s")


def at_knee(answers: Answers, target: Target) -> Finding | None:
    """Judge (e), whether the batch is the knee of the curve, within a power of two, without accumulation.

    The knee is the smallest batch of the curve that reaches 95 % of its fastest. None where a batch is declared.
    """
    if target.declares_batch:
        return None
    rates = speeds(answers, target)
    told = [_batch(one) for one in answers.quiet]
    if not rates:
        return Finding(standing=Standing.NOT_RUN, text=", ".join(told) or "–")
    knee = min(size for size, rate in rates.items() if rate >= KNEE * max(rates.values()))
    good = [
        bool(one.values)
        and one.values["gradient_accumulation_steps"] == 1
        and abs(math.log2(changes.samples(key(one.values)) / knee)) <= 1
        for one in answers.quiet
    ]
    return Finding(
        standing=Standing.HOLDS if all(good) else Standing.FAILS, text=f"{', '.join(told)}; the knee is {knee}"
    )


def speeds(answers: Answers, target: Target) -> dict[int, float]:
    """The curve, relative to the first answer; empty until all of its batches were run."""
    loops, sizes = Loops(answers), changes.curve(answers, target)
    ratios = {size: loops.ratio(config, answers.answered[0]) for size, config in sizes.items()}
    missing = [size for size, ratio in ratios.items() if ratio is None and sizes[size] not in loops.died]
    return {} if missing else {size: ratio[0] for size, ratio in ratios.items() if ratio is not None}


def _batch(search: Search) -> str:
    if not search.values:
        return "failed"
    accumulated = search.values["gradient_accumulation_steps"]
    return f"{search.values['batch_size']}{f' × {accumulated}' if accumulated != 1 else ''}"


def shown(config: str, group: tuple[str, ...]) -> str:
    """One change's value for a table: `batch 16 ×4`, `threads 1`."""
    values = values_of(config)
    first, *more = (knob(name) for name in group)
    rest = "".join(f" {one.show(values[one.name])}" for one in more if values[one.name] != one.default)
    return f"{first.label} {first.show(values[first.name])}{rest}"


def percent(ratio: tuple[float, float, float]) -> str:
    """`+12 % (+10 to +14)`."""
    estimate, low, high = (100 * (one - 1) for one in ratio)
    return f"{estimate:+.1f} % ({low:+.1f} to {high:+.1f})"
