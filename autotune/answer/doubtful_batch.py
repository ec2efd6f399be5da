"""Batches that change what the model learns: the baseline's is kept unless another is surely worth it. Pure.

Where the objective is speed, two such changes must be proven to gain over the fastest configuration without them, in
the same rounds: another micro-batch where BatchNorm takes its statistics from it (decisions/0057) or the loss is no
mean over samples, and another global batch where that is free (decisions/0066). The gain must be as large as the one
required of a precision whose losses are undecided, or as the share that the knee gives up, and it must not be explained
by chance.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.records import Config, StudyRequest
from autotune.core.rounds import Rounds
from autotune.knobs import knob
from autotune.knobs.changes import BATCH_KNOBS, changes_between
from autotune.objectives import objective_of
from autotune.study.summary import ConfigSummary, rounds_of

LEAST_BATCH_GAIN = 0.05  # over the fastest with the baseline's: a smaller gain is not worth the doubt about BatchNorm
# Gain over the best single probe with the baseline's global batch: above it another batch is confirmed, if time allows.
EVIDENT_SLOWDOWN = 0.15
# Of the interval that must exclude a slowdown, 90 % one-sided: at 95 % two rounds cannot prove a gain of 20 %.
BATCH_CONFIDENCE = 0.8


def is_batch_doubtful(config: Config, request: StudyRequest) -> bool:
    """Return whether its batch changes what the model learns.

    It does so by the global batch, or by the micro-batch that BatchNorm or a loss over the batch sees. Where the global
    batch is free, the user asked for other micro-batches. Never doubtful where the objective gives up speed for
    something else.
    """
    goal, objective = request.goal, objective_of(request.goal)
    if objective.slack(goal) is not None:
        return False
    if goal.global_batch is None:
        return objective.knee(goal) is not None and config.global_batch_size() != request.baseline.global_batch_size()
    return is_micro_batch_doubtful(config, request)


def is_micro_batch_doubtful(config: Config, request: StudyRequest) -> bool:
    """Return whether its micro-batch is another than the baseline's, and BatchNorm or the loss sees that."""
    is_seen = not knob("batch_size").is_exact(request.facts)
    return is_seen and config.batch_size != request.baseline.batch_size


def least_gain(request: StudyRequest) -> float:
    """Return the share by which another batch must be faster: 5 %, or by the share that the knee gives up."""
    share = objective_of(request.goal).knee(request.goal)
    return LEAST_BATCH_GAIN if share is None else share / (1 - share)


def is_taken_back(winner: Config, config: Config, request: StudyRequest) -> bool:
    """Return whether the winner's batch is doubtful, and `config` is the winner with the baseline's batch."""
    if not is_batch_doubtful(winner, request) or is_batch_doubtful(config, request):
        return False
    return changes_between(winner.values, config.values) == [BATCH_KNOBS]


def is_worth_it(scores: Rounds, one: int, held: int, request: StudyRequest) -> bool:
    """Return whether the gain of `one` over `held`, positions in `scores`, is large enough and probably not chance."""
    estimate, low, _ = scores.ratio(one, held, BATCH_CONFIDENCE)
    return estimate > 1 + least_gain(request) and low > 1


def is_batch_open(candidates: Sequence[ConfigSummary], request: StudyRequest) -> bool:
    """Return whether another batch seems to gain enough over the fastest with the baseline's: rounds may prove it."""
    places = {is_other: [i for i, one in enumerate(candidates) if is_batch_doubtful(one.config, request) is is_other]
              for is_other in (False, True)}  # fmt: skip
    if not all(places.values()):
        return False
    scores = rounds_of(candidates)
    held, other = (max(places[is_other], key=scores.typical_rate) for is_other in (False, True))
    estimate, low, _ = scores.ratio(other, held, BATCH_CONFIDENCE)
    return estimate > 1 + least_gain(request) and low <= 1


def without_unproven_batches(
    allowed: Sequence[int], configs: Sequence[Config], scores: Rounds, request: StudyRequest
) -> list[int]:
    """Return those of `allowed` with the baseline's batch, and those that gain enough over the fastest of these."""
    held = [one for one in allowed if not is_batch_doubtful(configs[one], request)]
    if not held:
        return list(allowed)
    best = max(held, key=scores.typical_rate)
    return [one for one in allowed if one in held or is_worth_it(scores, one, best, request)]
