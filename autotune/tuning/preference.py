"""Which of several configurations that are equally good is preferred: one rule for all who have to ask. Pure.

The baseline comes before all of them; that is decided where the rounds are read (`choice.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.knobs import KNOBS
from autotune.objectives import objective_of
from autotune.objectives.base import MEMORY_STEP, Contender
from autotune.records import Config, StudyRequest
from autotune.space import changes

SCARCE = 0.3  # of the limit left free: with more, less memory is of no use to anybody


def preferences(contenders: Sequence[Contender], request: StudyRequest) -> list[tuple[float, ...]]:
    """A sort key for each of the contenders, who are all equally good: the lowest is preferred.

    First what the objective prefers. Then, in this order: the smaller global batch where it is free; the baseline's
    micro-batch where BatchNorm takes its statistics from it; fewer changes to the baseline; full precision; no
    environment variable; less memory, where memory is scarce; fewer processes and threads.
    """
    objective = objective_of(request.goal)
    first = min(contenders, key=objective.order, default=None)
    least = min((contender.peak_bytes for contender in contenders), default=0)
    return [
        (
            objective.order(contender) if first is not None and objective.is_lower(first, contender) else 0.0,
            *_cautions(contender.config, request),
            float(_is_scarce(contender, request) and contender.peak_bytes > MEMORY_STEP * least),
            sum(knob.caution(contender.config[knob.name]) for knob in KNOBS if not knob.numerics),
        )
        for contender in contenders
    ]


def _cautions(config: Config, request: StudyRequest) -> tuple[float, ...]:
    baseline = request.baseline
    return (
        float(config.global_batch_size() if request.goal.global_batch is None else 0),
        float(request.facts.has_batch_norm and config.batch_size != baseline.batch_size),
        float(changes(config, baseline)),
        sum(knob.caution(config[knob.name]) for knob in KNOBS if knob.numerics),
        float(sum(bool(knob.environ(config[knob.name])) for knob in KNOBS)),
    )


def _is_scarce(contender: Contender, request: StudyRequest) -> bool:
    return contender.peak_bytes > (1 - SCARCE) * request.memory_limit_bytes
