"""The gradients that were sampled: how long and how well aligned those of single micro-batches were.

Raw values are kept; `gradient_noise/estimate.py` makes the noise scale of them.
"""

from __future__ import annotations

from typing import ClassVar

from autotune.core.records import Config, Record
from autotune.core.requests import Request
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


class NoiseScaleRequest(Request[NoiseScaleResult], frozen=True, kw_only=True, tag="noise-scale", tag_field="request"):
    """Ask for the gradients of many micro-batches at the same weights, as soon as training has really begun.

    At initialisation they say nothing of training: what they lead to was wrong by 0.03 to 7 times there, within 3.4
    times after 30 steps (docs/notes/noise.md 3). So training goes on until the loss has fallen, within limits.
    """

    FOLDER: ClassVar[str] = "noise_scale"

    target: str
    config: Config  # without accumulation: each optimizer step is one micro-batch
    device: str
    seed: int = 0
    least_steps: int = 30  # optimizer steps before the loss is looked at, however long they take
    most_steps: int = 100  # and after which it is done whether the loss has fallen or not
    least_fall: float = 0.1  # of the first losses; 10 to 30 % is where training has begun (docs/notes/noise.md 3)
    micro_batches: int = 64  # with 16 the interval is often open at its upper end (docs/notes/noise.md 2)
    max_seconds: float = 60.0  # of training and measuring; what it cuts short is told by the number of gradients
