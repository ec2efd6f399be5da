"""Times micro-steps of several ranks with and without an exchange of gradients, in pairs."""

from __future__ import annotations

from functools import cached_property

from autotune.core.communication import Communication
from autotune.core.requests import ProbeBudget

LEAST_PAIRS = 3  # if they take at most EXCHANGE_PATIENCE times the required seconds
MOST_EXCHANGE_PAIRS = 50
EXCHANGE_PATIENCE = 2.0


class Exchange:
    """Pairs of micro-steps after the warm-up, without and then with an exchange; the caller measures their time."""

    def __init__(self, budget: ProbeBudget) -> None:
        self._seconds = budget.max_compute_seconds
        self._without: list[float] = []
        self._with: list[float] = []

    @property
    def result(self) -> Communication | None:
        """The seconds of all pairs; None: there was no pair."""
        if not self._with:
            return None
        return Communication(without_seconds=tuple(self._without), with_seconds=tuple(self._with))

    @cached_property
    def exposed_seconds(self) -> float:
        """The seconds that an exchange adds to a micro-step, once all pairs are done; 0.0: there was no pair."""
        return self.result.exposed_seconds if self.result else 0.0

    def micro_step(self, seconds: float, *, exchanges: bool) -> bool:
        """Note the seconds of a micro-step; return whether it was the last that is needed."""
        (self._with if exchanges else self._without).append(seconds)
        if not exchanges:
            return False
        elapsed, pairs = sum(self._without) + sum(self._with), len(self._with)
        patience = EXCHANGE_PATIENCE if pairs < LEAST_PAIRS else 1.0
        return pairs >= MOST_EXCHANGE_PAIRS or elapsed >= self._seconds * patience
