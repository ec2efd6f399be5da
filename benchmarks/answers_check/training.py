"""Plain loops of one target: every candidate screened once, then what judges the answers in interleaved rounds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from benchmarks.answers_check.changes import candidates, wanted
from benchmarks.answers_check.records import Answers, Died, Round, values_of
from benchmarks.answers_check.searching import busy_share
from benchmarks.answers_check.targets import Target
from benchmarks.surfaces import plain

SCREENING_SECONDS = 1.0  # of each candidate's loop: starting it takes longer


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is trained."""

    seconds: float  # of each loop in the rounds
    rounds: int  # until then every call adds some
    minutes: float  # of one call for one target


def trained(
    target: Target, answers: Answers, effort: Effort, kept: Callable[[Answers], None],
    clock: Callable[[], float] = time.monotonic,
) -> Answers:  # fmt: skip
    """Screen and run rounds as far as the minutes go; `kept` gets what is known after every step.

    A round that would probably not end in time is not begun. The first one that a call begins always ends.
    """
    ends_at, longest = clock() + 60 * effort.minutes, 0.0
    for config in candidates(answers, target):
        if config not in answers.screened and clock() < ends_at:
            answers = replace(answers, screened={**answers.screened, config: _rate(target, config, SCREENING_SECONDS)})
            kept(answers)
    if not all(config in answers.screened for config in candidates(answers, target)):
        return answers
    configs = wanted(answers, target)
    while configs and _complete(answers, configs) < effort.rounds and clock() + longest < ends_at:
        began = clock()
        answers = replace(answers, rounds=(*answers.rounds, _round(target, answers, configs, effort.seconds)))
        kept(answers)
        longest = max(longest, clock() - began)
    return answers


def _complete(answers: Answers, configs: tuple[str, ...]) -> int:
    """Rounds that hold all of these."""
    return sum(set(configs) <= set(one.rates) for one in answers.rounds)


def _round(target: Target, answers: Answers, configs: tuple[str, ...], seconds: float) -> Round:
    """Every other one goes backwards, so that drift meets all alike; what died once is not trained again."""
    print(f"{target.name}: round {len(answers.rounds) + 1}, {len(configs)} plain loops", file=sys.stderr, flush=True)
    busy, rates = busy_share(), dict[str, float | Died]()
    for config in configs if len(answers.rounds) % 2 == 0 else reversed(configs):
        before = [one.rates.get(config) for one in answers.rounds]
        fate = next((rate for rate in before if isinstance(rate, Died)), None)
        rates[config] = fate or _rate(target, config, seconds)
    return Round(rates=rates, busy=busy)


def _rate(target: Target, config: str, seconds: float) -> float | Died:
    """samples/s of one plain loop, or of what it died."""
    ran = plain.in_turn(target, {config: values_of(config)}, seconds, 1)[config]
    return ran.died if ran.rate is None else round(ran.rate, 3)
