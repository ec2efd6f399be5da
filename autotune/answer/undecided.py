"""Finds whether it is undecided if anything beats the baseline, and how many rounds would decide it. Pure."""

from __future__ import annotations

import math
import statistics

from autotune.answer.choice import PAYING_GAIN, TIE, at_knee, confidence
from autotune.answer.confirmation_rounds import FEWEST_ROUNDS, MOST_CONFIRMATION_ROUNDS, fewest_rounds
from autotune.answer.crowded_out import is_crowded_out
from autotune.answer.ranking import Ranking, rounded_ratio
from autotune.objectives import objective_of
from autotune.study.recommendation import Undecided


def find_undecided(ranking: Ranking, seconds: float) -> Undecided | None:
    """Return what is open between the baseline and the chosen one, or its closest rival if it was chosen itself."""
    request, measured, scores, baseline = ranking.request, ranking.measured, ranking.scores, ranking.baseline
    if baseline is None or objective_of(request.goal).slack(request.goal) is not None:
        return None
    may = [ranking.chosen] if ranking.chosen != baseline else [i for i in ranking.allowed if i != baseline]
    near = at_knee(measured, scores, request, ranking.allowed)
    level = confidence(scores, is_baseline=True)
    rivals = {one: scores.ratio(one, baseline, level) for one in may}
    is_crowded = {one: is_crowded_out(measured[baseline], request, low) for one, (_, low, _) in rivals.items()}
    has_rounds = {one: scores.count(one, baseline) >= FEWEST_ROUNDS for one in may}  # else wide for any gain
    open_ones = [
        one for one, (gain, low, high) in rivals.items()
        if (low <= 1 or is_crowded[one])
        and ((one in near and gain > 1 + TIE) or (has_rounds[one] and high > 1 + PAYING_GAIN))
    ]  # fmt: skip
    if not open_ones:
        return None
    rival = max(open_ones, key=lambda one: rivals[one][0])
    gain, low, high = rounded_ratio(rivals[rival])
    rounds = scores.count(rival, baseline)
    needed = None if is_crowded[rival] else _rounds_needed(rivals[rival][0], rivals[rival][1], rounds)
    minutes = None
    if needed is not None:
        running = [[trial.result.elapsed_seconds for trial in one.trials] for one in measured if not one.is_behind]
        round_seconds = sum(statistics.fmean(took) for took in running if took)
        minutes = math.ceil((seconds + (needed - rounds) * round_seconds) / 60)
    return Undecided(
        config=measured[rival].config, gain=gain, gain_low=low, gain_high=high, rounds=rounds,
        beside_others=is_crowded[rival], rounds_needed=needed, minutes_needed=minutes,
    )  # fmt: skip


def _rounds_needed(gain: float, low: float, rounds: int) -> int | None:
    """Return the number of rounds that would decide: an interval narrows with the square root of their number."""
    if gain > 1 + TIE and rounds < FEWEST_ROUNDS:
        return fewest_rounds(2)
    if gain <= 1 + TIE or low <= 0:
        return None
    needed = math.ceil(rounds * (math.log(gain / low) / math.log(gain)) ** 2) + 1
    return needed if needed <= MOST_CONFIRMATION_ROUNDS else None
