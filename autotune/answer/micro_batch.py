"""The micro-batch that BatchNorm takes its statistics from: it is held unless another is surely worth it. Pure.

Where a global batch is held and speed is sought, another micro-batch changes what such a model learns, and the answer
has to warn of it. So its gain over the same configuration with the baseline's micro-batch has to be as large as that of
a precision whose losses are undecided, and not luck (decisions/0057).
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.records import Config, StudyRequest
from autotune.core.rounds import Rounds
from autotune.knobs.changes import BATCH_KNOBS, changes_between
from autotune.objectives import objective_of
from autotune.study.summary import ConfigSummary, rounds_of

LEAST_MICRO_BATCH_GAIN = 0.05  # over the fastest that holds it: for less nobody should have to think about BatchNorm
CONFIDENCE = 0.8  # of the interval that has to exclude a loss, 90 % one-sided: at 95 % two rounds cannot show 20 %


def is_doubtful(config: Config, request: StudyRequest) -> bool:
    """Whether it has another micro-batch than the baseline, and BatchNorm sees that.

    Not where the global batch is free or memory is sought: there other micro-batches are what was asked for.
    """
    goal = request.goal
    if not request.facts.has_batch_norm or goal.global_batch is None or objective_of(goal).slack(goal) is not None:
        return False
    return config.batch_size != request.baseline.batch_size


def is_taken_back(winner: Config, config: Config, request: StudyRequest) -> bool:
    """Whether `config` is the winner with the baseline's micro-batch and all else alike, and BatchNorm sees that."""
    if not is_doubtful(winner, request) or is_doubtful(config, request):
        return False
    return changes_between(winner.values, config.values) == [BATCH_KNOBS]


def is_worth_it(scores: Rounds, one: int, held: int) -> bool:
    """Whether the gain of `one` over `held`, by their positions in `scores`, is large enough, and probably no luck."""
    estimate, low, _ = scores.ratio(one, held, CONFIDENCE)
    return estimate > 1 + LEAST_MICRO_BATCH_GAIN and low > 1


def is_open(racers: Sequence[ConfigSummary], request: StudyRequest) -> bool:
    """Whether another micro-batch seems to be worth it over the fastest that holds it, and more rounds may show it."""
    places = {is_other: [i for i, one in enumerate(racers) if is_doubtful(one.config, request) is is_other]
              for is_other in (False, True)}  # fmt: skip
    if not all(places.values()):
        return False
    scores = rounds_of(racers)
    held, other = (max(places[is_other], key=scores.typical_rate) for is_other in (False, True))
    estimate, low, _ = scores.ratio(other, held, CONFIDENCE)
    return estimate > 1 + LEAST_MICRO_BATCH_GAIN and low <= 1


def worth_their_warning(
    allowed: Sequence[int], configs: Sequence[Config], scores: Rounds, request: StudyRequest
) -> list[int]:
    """Return those of `allowed` that hold the micro-batch, and those that are worth it over the fastest of them."""
    held = [one for one in allowed if not is_doubtful(configs[one], request)]
    if not held:
        return list(allowed)
    best = max(held, key=scores.typical_rate)
    return [one for one in allowed if one in held or is_worth_it(scores, one, best)]
