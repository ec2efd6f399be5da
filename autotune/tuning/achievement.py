"""What the objective says of a winner: its score, its gain over the baseline, and the sentences that tell them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.objectives import objective_of
from autotune.objectives.base import Contender, Decision
from autotune.records import StudyRequest
from autotune.stats import Rounds
from autotune.tuning.confirm import Candidate
from autotune.tuning.recommendation import Achieved, baseline_name

UNITY = (1.0, 1.0, 1.0)


def contenders(held: Sequence[Candidate], rates: Rounds, scores: Rounds) -> list[Contender]:
    """The candidates of the run-off, as an objective looks at them; `rates` and `scores` are of the same rounds."""
    return [
        Contender(
            config=candidate.config,
            score=scores.mean_rate(i),
            samples_per_second=rates.mean_rate(i),
            peak_bytes=candidate.peak_bytes,
            is_trusted=not candidate.refused,
        )
        for i, candidate in enumerate(held)
    ]


def achievement(
    compared: Sequence[Contender], rates: Rounds, scores: Rounds, winner: int, baseline: int | None,
    request: StudyRequest,
) -> tuple[Achieved, tuple[str, ...]]:  # fmt: skip
    """For best.json, and sentences for people. `winner` and `baseline` are positions in `compared`."""
    objective = objective_of(request.goal)
    gain = speedup = None
    if baseline is not None:
        same = baseline == winner
        gain, speedup = (UNITY if same else one.ratio(winner, baseline) for one in (scores, rates))
    decision = Decision(
        chosen=compared[winner],
        baseline=None if baseline is None else compared[baseline],
        baseline_name=baseline_name(assumed=request.baseline_assumed),
        leader=max((one for one in compared if one.is_trusted), key=lambda one: one.score),
        gain=gain,
        speedup=speedup,
        goal=request.goal,
        facts=request.facts,
    )
    estimate, low, high = gain or (None, None, None)
    achieved = Achieved(
        unit=objective.unit,
        score=_significant(decision.chosen.score),
        baseline_score=None if decision.baseline is None else _significant(decision.baseline.score),
        gain=None if estimate is None else round(estimate, 4),
        gain_low=round(low, 4) if low else None,
        gain_high=round(high, 4) if high is not None and math.isfinite(high) else None,
        headline=objective.headline(decision),
    )
    return achieved, objective.reasons(decision)


def _significant(value: float) -> float:
    """Five digits: more than any spread supports, few enough to read."""
    return float(f"{value:.5g}")
