"""What trainings with several global batches left behind that went on from the same state.

Raw losses are kept; `goodput.py` judges them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import field

from autotune.records import PROTOCOL, Record
from autotune.results import Failure, Outcome


class Branch(Record, frozen=True, kw_only=True):
    """One of them; entries are per optimizer step."""

    global_batch: int
    learning_rate_factor: float  # what the target's learning rate was multiplied by
    optimizer: str  # its class
    losses: tuple[float | None, ...]  # each before its update; None: not finite
    samples: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.losses) != len(self.samples):
            raise ValueError(f"{len(self.losses)} losses of {len(self.samples)} steps")


class BranchesResult(Record, frozen=True, kw_only=True):
    """What a `BranchesRequest` left behind: OK has branches and no failure; every other outcome has a failure."""

    protocol: int = PROTOCOL
    outcome: Outcome
    branches: tuple[Branch, ...] = ()
    failure: Failure | None = None
    phase_seconds: dict[str, float] = field(default_factory=dict)
    started_at: str = ""  # UTC, ISO 8601
    elapsed_seconds: float = 0.0

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.OK) != bool(self.branches) or bool(self.branches) != (self.failure is None):
            raise ValueError(f"outcome {self.outcome} does not fit branches and failure")


class BranchLoss(Record, frozen=True, kw_only=True):
    """Where one branch came to, after as many samples as all others."""

    global_batch: int
    learning_rate_factor: float
    loss: float | None  # in the middle of the last quarter; None: not finite, or too few steps
    half_width: float | None  # 95 %


class GoodputCheck(Record, frozen=True, kw_only=True):
    """How many times the samples a global batch needed for the same loss, against another; intervals are of 90 %."""

    verdict: Literal["agrees", "does not agree", "not resolved"]
    global_batch: int
    baseline_batch: int
    samples: int  # of each branch, over which they were compared
    optimizer: str
    branches: tuple[BranchLoss, ...]
    foretold: float  # by the noise scale
    foretold_low: float  # the growth of the noise scale during training counted in
    foretold_high: float
    observed: float | None = None  # None: it cannot be told
    low: float | None = None  # None: open
    high: float | None = None
    why: str = ""  # in a clause, where it is not resolved or did not train
