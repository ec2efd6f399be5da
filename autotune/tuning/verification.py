"""`--verify-goodput`: trainings that show whether a global batch does what the noise scale foretold of it.

the baseline's batch, the recommended one, one between ─► one child ─► losses at equal samples ─► a sentence
"""

from __future__ import annotations

import math
from pathlib import Path

from msgspec.structs import replace

from autotune import folder as disk
from autotune.branches import GoodputCheck
from autotune.errors import AutotuneError
from autotune.goodput import judge
from autotune.launch.base import LOG, Launcher
from autotune.records import Config, StudyRequest
from autotune.requests import BranchesRequest
from autotune.results import Outcome
from autotune.tuning.recommendation import BatchAdvice, Recommendation
from autotune.tuning.reporter import Reporter

LEAST_SECONDS = 15.0  # four builds, and a few dozen steps of the largest batch
MOST_SECONDS = 300.0
SHARE = 0.2  # of the time budget, kept for it


def kept_seconds(budget_seconds: float) -> float:
    """What a search leaves of its time budget for these trainings, seconds; never less than they take at least."""
    return min(MOST_SECONDS, max(LEAST_SECONDS, SHARE * budget_seconds))


def verified(
    recommendation: Recommendation, folder: Path, request: StudyRequest, launcher: Launcher, reporter: Reporter,
    left_seconds: float,
) -> Recommendation:  # fmt: skip
    """The recommendation with what such trainings say of its global batch, or with a warning why there were none.

    The answer is already kept, so nothing here may cost it: an interrupt or a fault ends the trainings only. They have
    what is left of the time budget, 15 to 300 s; those that the study already has of the same branches count again.
    """
    advice = recommendation.batch_advice
    if advice is None or advice.noise.phi is None or advice.noise.high is None:
        return _without(recommendation, "The noise scale is not known, so nothing is foretold that could be checked.")
    asked = _asked(recommendation, folder, request, min(MOST_SECONDS, left_seconds))
    attempts = [pair for pair in disk.read_branches(folder) if _same(pair[0], asked) and pair[1].outcome is Outcome.OK]
    if attempts:
        return _with_check(recommendation, advice, judge(attempts[-1][1], advice.noise, _subject(asked)))
    if left_seconds < LEAST_SECONDS:
        return _without(
            recommendation,
            f"Of the time budget {max(0.0, left_seconds):.0f} s were left, and it takes {LEAST_SECONDS:.0f} s at "
            f"least. The same command with a longer --time-budget goes on with it.",
        )
    batches = ", ".join(str(config.global_batch_size()) for config in asked.branches)
    reporter.note(
        f"Recommended. Training with global batches of {batches} from the same weights on, for at most "
        f"{asked.max_seconds:.0f} s; Ctrl-C leaves it out."
    )
    try:
        _, place = disk.new_branches(folder)
        result = launcher.train_branches(asked, place)
    except KeyboardInterrupt:
        return _without(recommendation, "It was interrupted. The same command goes on with it.")
    except AutotuneError as error:
        return _without(recommendation, str(error))
    if result.failure is not None:
        why = result.failure.message.rstrip(".")
        return _without(recommendation, f"A training with another global batch failed: {why}. See {place / LOG}.")
    check = judge(result, advice.noise, _subject(asked))
    reporter.note(f"{sentences(check)[0]}.")
    return _with_check(recommendation, advice, check)


def sentences(check: GoodputCheck) -> tuple[str, str]:
    """What the trainings say against what was foretold, and the losses and learning rates that it rests on."""
    batch, base = check.global_batch, check.baseline_batch
    foretold = f"{_interval(check.foretold, check.foretold_low, check.foretold_high)} ({1 / check.foretold:.0%})"
    if check.observed is not None or check.low is not None or check.high is not None:
        share = "" if check.observed is None else f" (efficiency {1 / check.observed:.0%})"
        needed = _interval(check.observed, check.low, check.high)
        seen = f"needed {needed} times the samples of {base} for the same loss{share}"
    else:
        seen = f"against {base}: {check.why}"
    because = f" ({check.why})" if check.why and check.why not in seen else ""
    comparison = (
        f"checked by training over {check.samples:,} samples from the same weights on: a global batch of {batch} "
        f"{seen}, foretold {foretold}; {_meaning(check)}{because}"
    )
    ends = ", ".join(
        f"{'unknown' if one.loss is None else f'{one.loss:.3g} ± {one.half_width or 0:.1g}'} with {one.global_batch} "
        f"({check.optimizer}'s learning rate × {one.learning_rate_factor:.2g})"
        for one in check.branches
    )
    return comparison, f"training loss after as many samples: {ends}; other learning rates may do better"


def branch_batches(baseline: int, recommended: int) -> tuple[int, ...]:
    """Global batches to train with, the baseline's first: the recommended one, and a power of two between the two.

    The one nearest to their geometric mean; where there is none between them, twice the larger.
    """
    between = 2 ** round(math.log2(math.sqrt(baseline * recommended)))
    low, high = sorted((baseline, recommended))
    third = between if low < between < high else 2 * high
    return tuple(dict.fromkeys((baseline, third, recommended)))


def _asked(recommendation: Recommendation, folder: Path, request: StudyRequest, seconds: float) -> BranchesRequest:
    """Everything but the batch as recommended, micro-batches no larger than those that were seen to fit."""
    advice = recommendation.batch_advice
    assert advice is not None and advice.noise.phi is not None, "asked for only where it is known"
    own = Config(values=recommendation.params)
    before = request.baseline.global_batch_size()
    start = [asked for asked, result in disk.read_gradients(folder) if result.sample is not None][-1].config.batch_size
    batches = branch_batches(before, own.global_batch_size())
    return BranchesRequest(
        target=request.target,
        config=_of(own, start, most=start),  # where the noise scale was measured
        steps=advice.noise.steps,
        branches=tuple(own if size == own.global_batch_size() else _of(own, size, own.batch_size) for size in batches),
        phi=advice.noise.phi,
        device=request.environment.device,
        seed=request.seed,
        max_seconds=seconds,
        memory_limit_bytes=request.enforced_limit_bytes,
    )


def _of(own: Config, size: int, most: int) -> Config:
    """The configuration at a global batch of `size`, of micro-batches of at most so many samples that divide it."""
    micro = max(count for count in range(1, min(size, most) + 1) if size % count == 0)
    return Config(values={**own.values, "batch_size": micro, "gradient_accumulation_steps": size // micro})


def _same(one: BranchesRequest, other: BranchesRequest) -> bool:
    return (one.target, one.config, one.branches) == (other.target, other.config, other.branches)


def _subject(asked: BranchesRequest) -> int:
    """The batch that is compared with the baseline's: the recommended one, or twice it where it is the baseline's."""
    return asked.branches[-1].global_batch_size()


def _with_check(recommendation: Recommendation, advice: BatchAdvice, check: GoodputCheck) -> Recommendation:
    reasons = (*sentences(check), *recommendation.reasons)
    return replace(recommendation, batch_advice=replace(advice, check=check), reasons=reasons)


def _without(recommendation: Recommendation, why: str) -> Recommendation:
    warning = f"--verify-goodput did not check the global batch. {why}"
    return replace(recommendation, warnings=(warning, *recommendation.warnings))


def _meaning(check: GoodputCheck) -> str:
    if check.verdict == "agrees":
        return "the two agree"
    if check.verdict == "not resolved":
        return "whether they agree is not resolved"
    if check.observed is None:
        return "the two do not agree"
    less = (check.observed < check.foretold) == (check.global_batch > check.baseline_batch)
    return f"the two do not agree: large batches waste {'fewer' if less else 'more'} samples here than the noise says"


def _interval(middle: float | None, low: float | None, high: float | None) -> str:
    """`3.1 [2.6, 3.8]`, with an open end left out: `more than 2.6`."""
    if low is None or high is None or middle is None:
        return f"more than {low:.2g}" if low is not None else f"less than {high or math.inf:.2g}"
    return f"{middle:.2g} [{low:.2g}, {high:.2g}]"
