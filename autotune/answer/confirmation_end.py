"""Decides when a confirmation ends: it is decided, or its choice is expected to lose too little for more rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.answer.choice import TIE
from autotune.core.rounds import Rounds

LAST_FINALISTS = 2  # finalists that run to the end, however many began
SURE_ROUNDS = 3  # before it may be decided: two rounds agree by luck now and then
SURE_CONFIDENCE = 0.99  # confidence needed to end a confirmation: high, because it is tested after every round
KNOWN_SLOWDOWN = 0.005  # expected of the choice, beyond a tie: less ends the rounds (benchmarks/confirmation_rounds.py)
SLOWDOWN_ROUNDS = 4  # before a small expected loss may end a confirmation (decisions/0024)
SURELY_SLOWER_RATIO = 1.01  # a rival that is surely slower by more than 1 % need not be measured again


def is_good_enough(rounds: Rounds, running: Sequence[int], baseline: int | None) -> bool:
    """Return whether the present choice is expected to lose so little that further rounds do not pay.

    False until the halvings are over: earlier, chance claimed gains where there were none (decisions/0024). The choice
    is the baseline where it is as good as the fastest, else the fastest, which must then surely beat it. The expected
    loss is the sum over all rivals, which over-estimates it. This holds for plain speed only: other objectives choose
    otherwise.
    """
    gaps = rounds.gaps(running)
    fastest = max(running, key=lambda one: gaps[one])
    stays = baseline is not None and gaps[baseline] >= math.log(1 - TIE)
    chosen = baseline if baseline is not None and stays else fastest
    rivals = [one for one in running if one not in (chosen, baseline)]
    are_many = sum(one != baseline for one in running) > LAST_FINALISTS
    if are_many or any(rounds.count(chosen, one) < SLOWDOWN_ROUNDS for one in running):
        return False
    if baseline is not None and not stays:
        sure = 1 - (1 - SURE_CONFIDENCE) / (1 + len(rivals))  # the fastest of several: Bonferroni's correction
        if rounds.ratio(fastest, baseline, sure)[1] <= 1:
            return False
    return sum(rounds.expected_slowdown(chosen, one, TIE) for one in rivals) < KNOWN_SLOWDOWN


def is_decided(rounds: Rounds, running: Sequence[int], tie: float = TIE) -> bool:
    """Return whether further rounds change nothing: every rival of the fastest is surely slower or surely as good."""
    gaps = rounds.gaps(running)
    fastest = max(running, key=lambda one: gaps[one])
    slower = SURELY_SLOWER_RATIO if tie <= TIE else 1 / (1 - tie)
    for rival in running:
        if rival == fastest:
            continue
        _, low, high = rounds.ratio(fastest, rival, SURE_CONFIDENCE)
        is_settled = low > slower or (low >= 1 - tie and high <= 1 / (1 - tie))
        if rounds.count(fastest, rival) < SURE_ROUNDS or not is_settled:
            return False
    return True
