"""The time budget of one search, and what is left of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """So many `seconds` since the moment `began`, by `clock`."""

    seconds: float
    clock: Callable[[], float]
    began: float

    def elapsed_seconds(self) -> float:
        """What this search has taken so far."""
        return self.clock() - self.began

    def left_seconds(self) -> float:
        """Below 0 once the budget is overrun."""
        return self.seconds - self.elapsed_seconds()
