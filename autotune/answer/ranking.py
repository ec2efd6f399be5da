"""The ranking of the candidates, and the figures of each as an answer stores them: rounded, None if unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.core.records import StudyRequest
from autotune.core.rounds import Rounds
from autotune.knobs import KNOBS
from autotune.study.summary import Compared, ConfigSummary, rounds_of
from autotune.units import significant


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The candidates that were measured, and which of them is chosen; all numbers are positions in `measured`."""

    request: StudyRequest
    measured: Sequence[ConfigSummary]
    rates: Rounds  # samples/s of the rounds that they ran together
    scores: Rounds
    allowed: Sequence[int]  # may be recommended
    baseline: int | None  # None: it cannot run here
    chosen: int

    @property
    def winner(self) -> ConfigSummary:
        """The configuration that was chosen to be recommended."""
        return self.measured[self.chosen]

    def figures(self, index: int) -> dict[str, Any]:
        """Return the figures of one candidate, by the field names of `Recommendation` and `AtBaselineBatch`."""
        one, limit = self.measured[index], self.request.memory_limit_bytes
        speedup: tuple[float | None, ...] = (None, None, None)
        if self.baseline is not None:
            speedup = (
                (1.0, 1.0, 1.0) if index == self.baseline else rounded_ratio(self.rates.ratio(index, self.baseline))
            )
        width = one.relative_half_width
        return {
            "global_batch_size": self.request.global_batch_size(one.config),
            "params": {knob.name: one.config[knob.name] for knob in KNOBS},
            "samples_per_second": significant(one.samples_per_second),
            "relative_half_width": None if width is None else round(width, 4),
            **dict(zip(("speedup", "speedup_low", "speedup_high"), speedup, strict=True)),
            "rounds": len(one.rates),
            "peak_bytes": one.peak_bytes,
            "headroom_fraction": round(1 - one.peak_bytes / limit, 4),
            "data_wait_share": round(one.data_wait_share, 4),
        }


def compared(
    candidates: Sequence[ConfigSummary], baseline: int | None = None
) -> tuple[list[ConfigSummary], Rounds, Rounds]:
    """Return the candidates with the means over all their rounds, and these rounds as rates and as scores.

    Rates are in samples/s; the baseline at that position is their reference.
    """
    rates = rounds_of(candidates, "rates", baseline)
    scores = rounds_of(candidates, "scores", baseline)
    means = [
        Compared(score=scores.typical_rate(i), samples_per_second=rates.typical_rate(i),
                 relative_half_width=rates.half_width(i))
        for i in range(len(candidates))
    ]  # fmt: skip
    return [replace(one, compared=mean) for one, mean in zip(candidates, means, strict=True)], rates, scores


def rounded_ratio(ratio: tuple[float, float, float]) -> tuple[float, float | None, float | None]:
    """Return a ratio and the ends of its interval with four digits; None for an end that is unknown."""
    estimate, low, high = ratio
    return round(estimate, 4), (round(low, 4) if low > 0 else None), (round(high, 4) if math.isfinite(high) else None)
