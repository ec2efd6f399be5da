"""What a sampler expects: of the configuration that it proposes, and at the end of every arm and batch of the space."""

from __future__ import annotations

from typing import Literal

from autotune.records import Record, Value


class Prediction(Record, frozen=True, kw_only=True):
    """Why a sampler proposed a configuration: what it expected, before the probe. Intervals are of 90 %.

    `why` is `gain` where the most was expected of it, and `direct` where the same was expected in an arm whose
    measurements the fitted law misses by over 15 %: then it rests on the batches around it, and no longer on the law.
    """

    samples_per_second: float  # median
    low: float
    high: float
    memory_share: float  # of the memory that may be used
    memory_bytes: int | None = None  # the same in bytes, where the limit is known
    fits: float  # chance to fit into memory, 0..1
    gain: float | None = None  # expected improvement as a share of the best so far; None: nothing was measured yet
    departure: float = 0.0  # by how much this batch and arm are believed faster than the fitted law says; 0.1: 10 %
    why: Literal["gain", "direct"] = "gain"


class Expectation(Record, frozen=True, kw_only=True):
    """What is believed of one configuration after the search, measured or not."""

    values: dict[str, Value]
    expected: Prediction


class Fit(Record, frozen=True, kw_only=True):
    """What a search has learned: for every arm and micro-batch the configuration that is expected to be fastest."""

    points: tuple[Expectation, ...]
