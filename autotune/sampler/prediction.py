"""The predictions of a sampler: for the configuration that it proposes, and at the end for every curve and batch."""

from __future__ import annotations

from typing import ClassVar, Literal

from autotune.core.records import Record


class Prediction(Record, frozen=True, kw_only=True):
    """The prediction for a configuration, made before its probe. Intervals are of 90 %.

    `why` is `direct` only in studies of earlier versions: where the fitted model missed a curve by over 15 %, the
    prediction was interpolated from the batches around it.
    """

    FORMER: ClassVar[frozenset[str]] = frozenset({"departure"})

    samples_per_second: float  # median
    low: float
    high: float
    memory_share: float  # of the memory that may be used
    memory_bytes: int | None = None  # the same in bytes, where the limit is known
    fits: float  # chance to fit into memory, 0..1
    gain: float | None = None  # expected improvement as a share of the best so far; None: nothing to compare with
    most_gain: float | None = None  # the same of the configuration that promises most, whatever its probe costs
    why: Literal["gain", "direct"] = "gain"
