"""The sampled gradients: the lengths of those of single micro-batches, and how well they are aligned.

Raw values are kept; `gradient_noise/estimate.py` computes the noise scale from them.
"""

from __future__ import annotations

from typing import ClassVar

from autotune.core.records import Config, Record
from autotune.core.requests import Request
from autotune.core.results import Outcome, Result


class GradientSample(Record, frozen=True, kw_only=True):
    """Gradients of micro-batches at the same weights, finite ones only; all tuples per micro-batch have one length."""

    losses: tuple[float | None, ...]  # of the earlier optimizer steps, which trained; None: not finite
    has_fallen: bool  # whether the loss had fallen as far as asked when the weights were frozen
    samples: tuple[int, ...]
    squared_norms: tuple[float, ...]  # |g|^2, unscaled
    alignments: tuple[float, ...]  # product of g with the mean of all g; their mean is the squared norm of that mean
    dropped: int = 0  # micro-batches whose gradient was not finite

    def __post_init__(self) -> None:
        if not len(self.samples) == len(self.squared_norms) == len(self.alignments):
            raise ValueError(f"{len(self.samples)} micro-batches with {len(self.squared_norms)} norms")

    @property
    def steps(self) -> int:
        """The number of optimizer steps before the weights were frozen."""
        return len(self.losses)


class NoiseScale(Record, frozen=True, kw_only=True):
    """The noise scale of one sample of gradients, in samples; interval of 90 %."""

    phi: float | None  # None: the mean gradient is not distinguishable from noise, and only `low` is known
    low: float
    high: float | None  # None: no upper bound is known
    steps: int  # number of optimizer steps before it was measured
    has_fallen: bool  # whether the loss had begun to fall by then
    samples: int  # number of samples that it was measured with


class NoiseScaleResult(Result, frozen=True, kw_only=True):
    """The result of a `NoiseScaleRequest`; with outcome OK it has a sample."""

    sample: GradientSample | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.outcome is Outcome.OK) != (self.sample is not None):
            raise ValueError(f"outcome {self.outcome} does not fit sample {self.sample}")


class NoiseScaleRequest(Request[NoiseScaleResult], frozen=True, kw_only=True, tag="noise-scale", tag_field="request"):
    """The request for gradients of many micro-batches at the same weights, as soon as training has really begun.

    At initialisation gradients say nothing about training: advice based on them was wrong by factors of 0.03 to 7, and
    by factors of at most 3.4 after 30 steps (docs/notes/noise.md 3). So training goes on until the loss has fallen,
    within limits.
    """

    FOLDER: ClassVar[str] = "noise_scale"

    target: str
    config: Config  # without accumulation: each optimizer step is one micro-batch
    device: str
    seed: int = 0
    least_steps: int = 30  # optimizer steps before the loss is looked at, however long they take
    most_steps: int = 100  # after which gradients are taken even if the loss has not fallen
    least_fall: float = 0.1  # share of the first losses; training has begun at 10 to 30 % (docs/notes/noise.md 3)
    micro_batches: int = 64  # with 16 the interval often has no upper end (docs/notes/noise.md 2)
    max_seconds: float = 60.0  # of training and measuring; the number of gradients shows whether they cut it short
