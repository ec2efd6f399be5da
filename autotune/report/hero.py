"""What stands beside the factor of an answer: how sure it is, the time of a step and of an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.core.records import TargetFacts
from autotune.report import phrases
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView
from autotune.units import counted, format_durations


@dataclass(frozen=True, kw_only=True)
class Certainty:
    """How sure it is that the answer beats the baseline, in a word and why."""

    word: Literal["clear", "likely", "tie"]
    why: str


def certainty(best: Recommendation) -> Certainty | None:
    """Return how sure the gain is; None where no gain is claimed or there is nothing to compare with."""
    if best.undecided is not None:
        return Certainty(word="tie", why="the rounds could not tell the two apart")
    if best.params == best.baseline or best.speedup is None:
        return None
    spread = phrases.interval(best)
    if not phrases.is_better(best):
        return Certainty(
            word="tie", why=f"the 95% interval ({spread}) includes 1" if spread else "no gain was measured"
        )
    if not spread or best.rounds < 2:
        return Certainty(word="likely", why=f"measured {phrases.times(best.rounds)}, without an interval")
    return Certainty(word="clear", why=f"95% interval over {best.rounds} interleaved rounds of separate processes")


def facts_of(best: Recommendation, view: StudyView | None) -> TargetFacts | None:
    """Return the facts of the target, which earlier versions kept in the study alone."""
    return best.facts or (view.request.facts if view else None)


def durations(best: Recommendation, facts: TargetFacts | None) -> str:
    """Return `68.1 → 34.7 ms a step · 1.53 → 0.78 s an epoch`: as today, then as recommended.

    With another global batch a step is another thing: then both times are for as many samples as it has now.
    """
    rates = [best.samples_per_second]
    if best.baseline_samples_per_second is not None and best.params != best.baseline:
        rates.insert(0, best.baseline_samples_per_second)
    batch, samples = best.global_batch_size, facts.dataset_samples if facts else None
    alike = len(rates) == 1 or batch == best.baseline_global_batch_size
    parts = [f"{format_durations(*(batch / rate for rate in rates))} {'a step' if alike else f'for {batch:,} samples'}"]
    if samples:
        parts.append(f"{format_durations(*(samples / rate for rate in rates))} an epoch")
    return " · ".join(parts)


def steps_per_epoch(best: Recommendation, facts: TargetFacts | None) -> str:
    """Return `1 optimizer step per epoch instead of 32.`, where the global batch changes; else empty."""
    samples, now, before = facts.dataset_samples if facts else None, *_global_batches(best)
    if not samples or now == before:
        return ""
    steps = counted(samples // now, "optimizer step") if samples >= now else "Less than one optimizer step"
    return f"{steps} per epoch instead of {samples // before:,}."


def _global_batches(best: Recommendation) -> tuple[int, int]:
    return best.global_batch_size, best.baseline_global_batch_size
