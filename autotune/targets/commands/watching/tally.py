"""Counts micro-batches, backward passes and optimizer steps of a training, and keeps the loss of the first step."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from autotune.targets.commands.watching.fetching import Fetched
from autotune.targets.own_loop import LoopReport


class Tally:
    """The counts of one training; it also passes every micro-batch to the report."""

    def __init__(self, report: LoopReport) -> None:
        self.steps = self.backwards = 0
        self.of_step = self.backwards_of_step = 0  # micro-batches and backward passes since the last step
        self.last: int | None = None  # samples of the micro-batch that was counted last
        self.seconds = 0.0  # that the first step took
        self._report, self._began = report, 0.0
        self._sizes: Counter[int] = Counter()
        self._counts: Counter[int] = Counter()  # how many steps had a number of micro-batches
        self._first_loss: Tensor | None = None  # of the first step: the sum of its micro-batches' shares

    @property
    def micro_batch(self) -> int | None:
        """The most common number of samples in a micro-batch; None: no micro-batch yet."""
        return _most(self._sizes)

    @property
    def micro_batches(self) -> int | None:
        """The most common number of micro-batches in a step; None: no step yet."""
        return _most(self._counts)

    @property
    def trained_seconds(self) -> float:
        """The seconds since the first step began."""
        return time.perf_counter() - self._began

    def loss(self) -> float | None:
        """Return the loss of the first step; None if it is not finite, or there was none. Waits for the device."""
        value = math.nan if self._first_loss is None else float(self._first_loss)
        return value if math.isfinite(value) else None

    def begin(self) -> None:
        """Start the clock of the first step, again if the work so far was no part of it."""
        self._began = time.perf_counter()

    def backward(self) -> None:
        """Count a backward pass."""
        self.backwards += 1
        self.backwards_of_step += 1

    def add_loss(self, loss: Tensor) -> None:
        """Add the loss of one backward pass before the first step."""
        self._first_loss = loss if self._first_loss is None else self._first_loss + loss

    def set_loss(self, shares: Sequence[Tensor]) -> None:
        """Replace the loss of the first step by the sum of these shares."""
        self._first_loss = sum(shares[1:], shares[0])

    def add(self, fetched: Fetched, loss: Tensor) -> None:
        """Count a micro-batch that was trained on, with its share of the loss."""
        self._report.counted(fetched.samples, fetched.tokens, fetched.seconds)
        self._report.micro_batch(loss)
        self.last = fetched.samples
        self._sizes[fetched.samples] += 1
        self.of_step += 1

    def forget(self) -> None:
        """Begin the next step, and drop the counts since the last: they belong to no counted step."""
        self.of_step = self.backwards_of_step = 0

    def step(self) -> None:
        """Count a step, of all micro-batches since the last."""
        if not self.steps:
            self.seconds = time.perf_counter() - self._began
        self.steps += 1
        self._counts[self.of_step] += 1
        self.forget()


def _most(counts: Counter[int]) -> int | None:
    return counts.most_common(1)[0][0] if counts else None
