"""The global batch in an answer: its change, the gain from the change, and the best configuration without it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from autotune.answer.choice import PROBABLE_CONFIDENCE, behind, choose
from autotune.answer.ranking import Ranking
from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import StudyRequest
from autotune.gradient_noise.estimate import learning_rate_factor
from autotune.objectives import objective_of
from autotune.study.recommendation import AtBaselineBatch
from autotune.study.summary import ConfigSummary


def global_batch_change(winner: ConfigSummary, request: StudyRequest, phi: float | None = None) -> Notice | None:
    """Return how the winner changes the baseline's global batch; `phi` is the gradient noise scale, where known."""
    now, before = request.global_batch_size(winner.config), request.global_batch_size(request.baseline)
    factor = now / before
    if now == before:
        return None
    if phi is None:
        rate = math.sqrt(factor)
        return notice(Code.GLOBAL_BATCH_CHANGED, now=now, before=before, factor=factor, learning_rate_factor=rate)
    rate = learning_rate_factor(now, before, phi)
    return notice(
        Code.GLOBAL_BATCH_CHANGED_NOISE_SCALE,
        now=now, before=before, factor=factor, sgd_factor=rate, adam_factor=math.sqrt(rate),
    )  # fmt: skip


def batch_reasons(ranking: Ranking, unchanged: AtBaselineBatch | None) -> Iterator[Notice]:
    """Yield the reasons for the chosen global batch, where it is free."""
    request, winner, scores = ranking.request, ranking.winner, ranking.scores
    knee = objective_of(request.goal).knee(request.goal)
    if knee is None:
        return
    now, before = request.global_batch_size(winner.config), request.global_batch_size(request.baseline)
    alike = [one for one in ranking.allowed if request.global_batch_size(ranking.measured[one].config) == now]
    # The share is that of the best configuration with this batch: the winner may be slower for other reasons.
    share = max(min(scores.ratio(own, one)[0] for one in ranking.allowed) for own in {ranking.chosen, *alike})
    leads = behind(ranking.measured, scores, ranking.allowed)
    best = max(ranking.allowed, key=scores.typical_rate)
    lows = {one: scores.ratio(best, one, PROBABLE_CONFIDENCE)[1] for one in leads}  # it may be behind by as little
    enough = [one for one, (estimate, _) in leads.items() if min(estimate, lows[one]) * (1 - knee) <= 1]
    batches = [request.global_batch_size(ranking.measured[one].config) for one in enough]
    smaller = min((batch for batch in batches if before < batch < now), default=None)
    if request.baseline_assumed:
        yield notice(Code.GLOBAL_BATCH_UNDECLARED, batch=now, share=share, smaller=smaller)
    else:
        yield notice(Code.GLOBAL_BATCH_FREE, batch=now, share=share, smaller=smaller, before=before)
    if unchanged is not None and unchanged.params == request.baseline.values:
        rivals = [one.config for one in ranking.measured if one.config != request.baseline]
        is_raced = before in map(request.global_batch_size, rivals)
        yield notice(Code.NOT_FASTER_WITH_BASELINE_BATCH if is_raced else Code.BASELINE_BATCH_ALONE, batch=before)
    elif unchanged is not None:
        yield notice(
            Code.FASTER_WITH_BASELINE_BATCH, batch=before, samples_per_second=unchanged.samples_per_second,
            speedup=unchanged.speedup, low=unchanged.speedup_low, high=unchanged.speedup_high,
        )  # fmt: skip


def at_baseline_batch(ranking: Ranking, stability: Callable[[ConfigSummary], Notice]) -> AtBaselineBatch | None:
    """Return the best configuration with the baseline's global batch, if that is free and the winner's differs.

    Return None otherwise, and if none was confirmed. `stability` returns what is known about a configuration's losses.
    """
    request, measured = ranking.request, ranking.measured
    if objective_of(request.goal).knee(request.goal) is None:
        return None
    batch = request.global_batch_size(request.baseline)
    may = [i for i, one in enumerate(measured) if request.global_batch_size(one.config) == batch and not one.refused]
    if not may or ranking.chosen in may:
        return None
    index = choose(measured, ranking.scores, request, may)
    return AtBaselineBatch(**ranking.figures(index), stability=stability(measured[index]))
