"""The gradients that were sampled: how long and how well aligned those of single micro-batches were.

Raw values are kept; `gradient_noise/estimate.py` makes the noise scale of them.
"""

from __future__ import annotations

from autotune.core.records import Record
from autotune.core.results import Outcome, Result


class GradientSample(Record, frozen=True, kw_only=True):
    """Gradients of micro-batches at the same weights; per micro-batch, all tuples of one length, finite ones only."""

    losses: tuple[float | None, ...]  # of the optimizer steps before, which trained; None: not finite
    has_fallen: bool  # the loss had fallen as far as was asked when the weights were frozen
    samples: tuple[int, ...]
    squared_norms: tuple[float, ...]  # |g|^2, unscaled
    alignments: tuple[float, ...]  # the product of g with the mean of all g; their mean is the mean's squared norm
    dropped: int = 0  # micro-batches whose gradient was not finite

    def __post_init__(self) -> None:
        if not len(self.samples) == len(self.squared_norms) == len(self.alignments):
            raise ValueError(f"{len(self.samples)} micro-batches with {len(self.squared_norms)} norms")

    @property
    def steps(self) -> int:
        """The optimizer steps before the weights were frozen."""
        return len(self.losses)


class NoiseScale(Record, frozen=True, kw_only=True):
    """The noise scale of one sample of gradients, in samples; interval of 90 %."""

    phi: float | None  # None: the mean gradient does not stand out of the noise, and only `low` is known
    low: float
    high: float | None  # None: open
    steps: int  # optimizer steps after which it was measured
    has_fallen: bool  # the loss had begun to fall by then
    samples: int  # that it was measured with


class NoiseScaleResult(Result, frozen=True, kw_only=True):
    """The result of a `NoiseScaleRequest`: OK has a sample."""

    sample: GradientSample | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.outcome is Outcome.OK) != (self.sample is not None):
            raise ValueError(f"outcome {self.outcome} does not fit sample {self.sample}")
