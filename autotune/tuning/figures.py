"""The figures of an answer, as they are kept: rounded, and None where they are not known."""

from __future__ import annotations

import math

from autotune.core.rounds import Rounds
from autotune.study.summary import ConfigSummary

Interval = tuple[float | None, float | None, float | None]  # estimate, low, high


def significant(value: float) -> float:
    """Five digits: more than any spread supports, few enough to read."""
    return float(f"{value:.5g}")


def speedup(rates: Rounds, index: int, baseline: int | None) -> Interval:
    """Return how many times as fast as the baseline, with the ends of the interval; None for what is not known."""
    if baseline is None:
        return None, None, None
    return (1.0, 1.0, 1.0) if index == baseline else _rounded(rates.ratio(index, baseline))


def _rounded(ratio: tuple[float, float, float]) -> Interval:
    estimate, low, high = ratio
    return round(estimate, 4), (round(low, 4) if low > 0 else None), (round(high, 4) if math.isfinite(high) else None)


def half_width(summary: ConfigSummary) -> float | None:
    """Return the half width of the 95 % interval of its samples/s, relative."""
    width = summary.relative_half_width
    return None if width is None else round(width, 4)
