"""The race: from the rounds so far to who goes on, and whether it is decided. Pure.

    screen    the search: whoever may be as fast as the best, for all that one probe can tell; eight at most
    round 1   A B C D E F G H base
          2   base H G F E D C B A     every other round in reverse (ABBA), so that drift meets all alike
          3   A B C D E F G H base     then the faster half goes on
          6   ...                      and of those again: two, and the baseline for the speed-up
    until it is decided, or the time is used up

Of the rules tried on simulated machines with the noise measured here, the one with the least regret at equal cost
(docs/notes/search.md 4; `benchmarks/race.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.stats import DRIFT, Rounds

MOST_LEADERS, FEWEST_LEADERS, FINALISTS = 8, 3, 2
HALVED_AFTER = (3, 6)  # rounds
FEWEST_ROUNDS = 2  # one has no interval
FEWEST_FREEDOM = 3  # of the noise: Student's 95 % is 3.2 standard errors with three, 12.7 with one (two rounds of two)
GOAL_ROUNDS = 8  # of the finalists: on a quiet machine they tell 2 % apart, power 0.92 (docs/notes/search.md 4)
MOST_ROUNDS = 12  # eight leave the recommended a regret of 1.9 %, twelve 1.2 %, for a sixth more (`benchmarks/race.py`)
SURE_ROUNDS = 3  # before it may be decided: two rounds agree by luck now and then
SURE = 0.99  # confidence of what ends a race: it is asked anew after every round
SLOWER = 1.01  # who is surely slower by more than 1 % need not be measured again
TIE = 0.02  # faster by less is not worth a change
MOST_TIE = 0.05  # beyond it an interval that includes 0 is lack of rounds, and no tie of two leaders
PRIOR_PROBES = 4  # repeats after which the reference's own spread weighs as much as the prior (docs/notes/search.md 3)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many leaders begin, and for how many rounds at most."""

    leaders: int
    rounds: int


def size(leaders: int, number: int) -> int:
    """How many of so many leaders run in round `number`, the first being 0."""
    for halving in HALVED_AFTER:
        if number >= halving and leaders > FINALISTS:
            leaders = max(FINALISTS, leaders // 2)
    return leaders


def probes(leaders: int, rounds: int, others: int) -> int:
    """What it costs; `others` (the baseline) run in every round."""
    return sum(size(leaders, number) + others for number in range(rounds))


def fewest_rounds(configurations: int) -> int:
    """How many rounds so many configurations take at least, for an interval that can say something: 4, 3, 2, 2, ..."""
    rivals = max(configurations - 1, 0)
    return max(FEWEST_ROUNDS, 1 + math.ceil(FEWEST_FREEDOM / rivals)) if rivals else FEWEST_ROUNDS


def plan(available: int, others: int, affordable: float) -> Plan:
    """As many leaders as can be seen through to eight rounds with `affordable` probes, three at least if there are.

    Then as many rounds as there is time for, `fewest_rounds` at least: a short budget is overrun rather than nothing
    confirmed.
    """
    few, most = min(available, FEWEST_LEADERS), min(available, MOST_LEADERS)
    leaders = next((n for n in range(most, few, -1) if probes(n, GOAL_ROUNDS, others) <= affordable), few)
    fewest = fewest_rounds(leaders + others)
    rounds = (n for n in range(MOST_ROUNDS, fewest, -1) if probes(leaders, n, others) <= affordable)
    return Plan(leaders=leaders, rounds=next(rounds, fewest))


def margin(references: Sequence[float]) -> float:
    """By which share a configuration may have been measured slower than the best and still be as fast.

    Three standard deviations of the difference of two probes (docs/notes/search.md 4). The deviation of one is that of
    `references` (rates of one configuration, probed again and again), drawn towards 3 % while they are few.
    """
    logs = [math.log(rate) for rate in references]
    mean = sum(logs) / max(len(logs), 1)
    squares = sum((value - mean) ** 2 for value in logs) + PRIOR_PROBES * DRIFT**2
    deviation = math.sqrt(squares / (PRIOR_PROBES + max(len(logs) - 1, 0)))
    return 1 - math.exp(-3 * math.sqrt(2) * deviation)


def going_on(
    rounds: Rounds, running: Sequence[int], keep: int, cautions: Mapping[int, tuple[float, ...]], tie: float = TIE
) -> list[int]:
    """Which `keep` of the configurations that are `running` go on, in their order: the fastest, and the next fastest.

    Those that fall behind by no more than `tie` are as good as the fastest: of them the more cautious come first.
    """
    gaps, near = rounds.gaps(running), math.log(1 - tie)
    fastest = max(running, key=lambda one: gaps[one])
    equal = sorted((one for one in running if near <= gaps[one]), key=lambda one: (cautions[one], -gaps[one]))
    slower = sorted((one for one in running if gaps[one] < near), key=lambda one: -gaps[one])
    chosen = list(dict.fromkeys((fastest, *equal, *slower)))[:keep]
    return [one for one in running if one in chosen]


def is_decided(rounds: Rounds, running: Sequence[int], tie: float = TIE) -> bool:
    """Whether further rounds would change nothing: every rival of the fastest is surely slower, or surely as good."""
    gaps = rounds.gaps(running)
    fastest = max(running, key=lambda one: gaps[one])
    slower = SLOWER if tie <= TIE else 1 / (1 - tie)
    for rival in running:
        if rival == fastest:
            continue
        _, low, high = rounds.ratio(fastest, rival, SURE)
        is_settled = low > slower or (low >= 1 - tie and high <= 1 / (1 - tie))
        if rounds.count(fastest, rival) < SURE_ROUNDS or not is_settled:
            return False
    return True


def confidence(rivals: int) -> float:
    """What a claim to be faster than the baseline takes, for the fastest of so many: 95 % for all of them together.

    One-sided, by Bonferroni; for a single rival the two-sided 95 % of every interval. Unadjusted, the luckiest of
    eight that were all equal was claimed to be faster in 7 to 16 % of the races (`benchmarks/race.py`).
    """
    return max(0.95, 1 - 2 * 0.05 / max(rivals, 1))
