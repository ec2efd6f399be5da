"""The durations of an answer: how long a step and an epoch take, and how many steps an epoch has."""

from __future__ import annotations

from autotune.core.records import TargetFacts
from autotune.study.recommendation import Recommendation
from autotune.units import counted, format_durations


def durations(best: Recommendation, facts: TargetFacts | None) -> str:
    """Return `68.1 → 34.7 ms a step · 1.53 → 0.78 s an epoch`: of today, then as recommended.

    If the global batch changes, steps differ in size: then both times are for the samples of a step of today.
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
    samples = facts.dataset_samples if facts else None
    now, before = best.global_batch_size, best.baseline_global_batch_size
    if not samples or now == before:
        return ""
    steps = counted(samples // now, "optimizer step") if samples >= now else "Less than one optimizer step"
    return f"{steps} per epoch instead of {samples // before:,}."
