"""The gain of a setting (speed with it over speed without it), and its words on terminal, page and card."""

from __future__ import annotations

from typing import Literal

from autotune.answer.choice import TIE
from autotune.answer.confirmation_rounds import FEWEST_ROUNDS
from autotune.core.records import Goal, Record
from autotune.objectives import objective_of
from autotune.study.recommendation import Change, Recommendation
from autotune.units import counted, format_speedup, range_phrase

Basis = Literal["rounds", "probes", "estimate"]
NOT_MEASURED = "not measured"


class Gain(Record, frozen=True, kw_only=True):
    """A ratio of two speeds (with another objective, of two scores), with its interval and evidence."""

    ratio: float
    low: float | None  # 95 % interval; None: not known
    high: float | None
    by: Basis
    count: int | None = None  # probes that an estimate is based on


def inverse(gain: Gain) -> Gain:
    """Return the inverse ratio."""
    low, high = (bound and 1 / bound for bound in (gain.high, gain.low))
    return Gain(ratio=1 / gain.ratio, low=low, high=high, by=gain.by, count=gain.count)


def gain_of(change: Change) -> Gain | None:
    """Return the gain of a change from `best.json`, which has the inverse ratio; None: it was not measured."""
    if not change.ratio:
        return None
    by: Basis = "probes" if change.untested else "rounds"
    return inverse(Gain(ratio=change.ratio, low=change.ratio_low, high=change.ratio_high, by=by))


def gain_of_answer(best: Recommendation) -> Gain | None:
    """Return the gain of the answer over the baseline, by its objective; None: it is not known."""
    known = best.achieved
    ratio, low, high = (
        (known.gain, known.gain_low, known.gain_high) if known else (best.speedup, best.speedup_low, best.speedup_high)
    )
    by: Basis = "rounds" if best.rounds >= FEWEST_ROUNDS else "probes"
    return Gain(ratio=ratio, low=low, high=high, by=by) if ratio else None


def gain_phrase(gain: Gain, goal: Goal, *, has_interval: bool = True) -> str:
    """Return `1.58× faster (1.34 to 1.87)`, `0.80×, slower (0.70 to 0.90)`, `1.01×, does nothing here (0.99 to 1.02)`.

    The factor comes first and is below 1 for a loss. Only with an interval there is a verdict in words.
    """
    factor, ends = f"{format_speedup(gain.ratio)}×", range_phrase(gain.low, gain.high)
    interval = f" ({ends})" if has_interval and ends else ""
    if gain.by == "estimate":
        return f"{NOT_MEASURED}; estimated {factor}{interval}"
    return f"{factor}{_verdict(gain, goal)}{interval}{', single probes' if gain.by == 'probes' else ''}"


def basis_phrase(gain: Gain) -> str:
    """Return what it rests on: `interleaved rounds`, `3 probes that differ in other settings too`."""
    match gain.by:
        case "rounds":
            return "interleaved rounds"
        case "probes":
            return "single probes"
    count = gain.count or 1
    return f"{counted(count, 'probe')} that {'differs' if count == 1 else 'differ'} in other settings too"


def is_nothing(gain: Gain) -> bool:
    """Return whether the whole interval is practically 1."""
    return gain.low is not None and gain.high is not None and gain.low > 1 - TIE and gain.high < 1 + TIE


def _verdict(gain: Gain, goal: Goal) -> str:
    if gain.low is None or gain.high is None:
        return ""
    if is_nothing(gain):
        return ", does nothing here"
    objective = objective_of(goal)
    if gain.low > 1:
        return f" {objective.better}"
    return f", {objective.worse}" if gain.high < 1 else ", not significant"
