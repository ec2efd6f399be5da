"""The time of an exchange of gradients that does not overlap computing: micro-steps with and without it, in turn."""

from __future__ import annotations

from statistics import median

from autotune.core.records import Record

EXPOSED_SHARE = 0.1  # of a micro-step with an exchange: from here on it is reported, and its knobs are searched


class Communication(Record, frozen=True, kw_only=True):
    """Micro-steps (forward and backward pass) of one rank on one batch, in pairs: without an exchange, then with one.

    With s and n for a micro-step with an exchange of gradients and without, and o for the optimizer's update, an
    optimizer step of k micro-batches takes T(k) = (k - 1) n + s + o: its last one exchanges (docs/scaling.md).
    """

    without_seconds: tuple[float, ...]  # n, of each pair
    with_seconds: tuple[float, ...]  # s

    @property
    def exposed_seconds(self) -> float:
        """The seconds of a micro-step in which only the exchange goes on: s - n, at least 0."""
        return max(0.0, median(self.with_seconds) - median(self.without_seconds))

    def exposed_in(self, seconds: float, micro_batches: int) -> float:
        """Return the exposed seconds of an exchange in steps of `seconds` for so many micro-batches, update left out.

        It takes at most what the micro-steps leave: other work may disturb the pairs by more than the steps.
        """
        return max(0.0, min(self.exposed_seconds, seconds - micro_batches * median(self.without_seconds)))

    @property
    def exposed_share(self) -> float:
        """The share of a micro-step in which only the exchange goes on, 0..1: (s - n) / s."""
        exchanging = median(self.with_seconds)
        return self.exposed_seconds / exchanging if exchanging > 0 else 0.0

    def step_seconds(self, micro_batches: int, optimizer_seconds: float) -> float:
        """Return the seconds of an optimizer step of `micro_batches` micro-batches."""
        return (micro_batches - 1) * median(self.without_seconds) + median(self.with_seconds) + optimizer_seconds
