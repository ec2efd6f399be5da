"""Rounds of a confirmation that were slow without a recorded reason: each is measured again, or left out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from autotune.core.results import Trial
from autotune.study.summary import ConfigSummary, rounds_of
from autotune.study.valid_probes import Judged

FEWEST_OTHERS = 2  # rounds that must remain where one is left out: one alone could be the odd one
Kept = TypeVar("Kept")


def without_outliers(
    candidates: Sequence[ConfigSummary], again: Callable[[Trial], Judged | None] = lambda trial: None
) -> list[ConfigSummary]:
    """Return the candidates without probes that were slow for a reason that no instrument saw (`Rounds.slow_outliers`).

    Each such probe is measured `again`, and the repeat counts: if it is equally slow, the configuration is that slow at
    times. Without time for a repeat, the probe is left out if two other rounds remain.
    """
    found = list(candidates)
    for place, number in rounds_of(candidates, "rates").slow_outliers():
        one = candidates[place]
        at = one.rounds.index(number)
        if one.trials[at].repeats is not None:
            continue
        repeat = again(one.trials[at])
        if repeat is not None:
            found[place] = _with_place(one, at, repeat)
        elif len(one.rounds) > FEWEST_OTHERS:
            found[place] = replace(_with_place(one, at), left_out=(*one.left_out, one.trials[at]))
    return found


def _with_place(candidate: ConfigSummary, at: int, *judged: Judged) -> ConfigSummary:
    """Return the candidate with `judged` in place of its probe at position `at`; if none is given, without it."""

    def other(kept: Sequence[Kept], new: Iterable[Kept]) -> tuple[Kept, ...]:
        return (*kept[:at], *new, *kept[at + 1 :])

    return replace(
        candidate,
        trials=other(candidate.trials, (trial for trial, _ in judged)),
        verdicts=other(candidate.verdicts, (verdict for _, verdict in judged)),
        rounds=other(candidate.rounds, (candidate.rounds[at] for _ in judged)),
    )
