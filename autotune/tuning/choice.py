"""The choice: which of the configurations that were measured in the same rounds is recommended. Pure.

    best      the highest score of all that may be recommended
    tied      those that are as good as the best: within 2 %, within 5 % and not significantly slower, or within what
              the objective may give up
    baseline  if it is tied with the best (and nothing tied is wanted more by the objective), it stays
    winner    of those that are tied and beat the baseline as the best does, the preferred one (`preference.py`)

What is not measurably better than the baseline never replaces it, not even as the tie of something that is.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.objectives import objective_of
from autotune.objectives.base import Contender
from autotune.records import StudyRequest
from autotune.stats import Rounds
from autotune.tuning import race
from autotune.tuning.preference import preferences


def choose(contenders: Sequence[Contender], rounds: Rounds, request: StudyRequest, allowed: Sequence[int]) -> int:
    """The position of the recommended one; `rounds` are of the contenders' scores, `allowed` may be recommended."""
    best = max(allowed, key=rounds.mean_rate)
    tied = [one for one in allowed if one == best or is_tied(rounds, best, one, contenders, request)]
    base = next((one for one in allowed if contenders[one].config == request.baseline), None)
    if base is not None:
        objective = objective_of(request.goal)
        rivals = [one for one in tied if objective.is_lower(contenders[one], contenders[base])]
        if base in tied and not rivals:
            return base
        if base not in tied:
            rivals = [one for one in tied if one == best or not is_tied(rounds, one, base, contenders, request)]
        tied = rivals
    keys = preferences([contenders[one] for one in tied], request)
    return min(zip(keys, tied, strict=True), key=lambda pair: (pair[0], -rounds.mean_rate(pair[1])))[1]


def is_tied(rounds: Rounds, best: int, other: int, contenders: Sequence[Contender], request: StudyRequest) -> bool:
    """Whether the one that the rounds show best does not count as better than this other one."""
    slack = objective_of(request.goal).slack(request.goal)
    is_baseline = contenders[other].config == request.baseline
    estimate, low, _ = rounds.ratio(best, other, confidence(rounds, is_baseline=is_baseline))
    if slack is not None:
        return estimate * (1 - slack) <= 1
    is_near = is_baseline or estimate <= 1 + race.MOST_TIE
    return estimate <= 1 + race.TIE or (low <= 1 and is_near)


def confidence(rounds: Rounds, *, is_baseline: bool) -> float:
    """Of the interval that may set two apart: the luckiest of many is not to beat the baseline by luck."""
    return race.confidence(rounds.configurations - 1 if is_baseline else 1)
