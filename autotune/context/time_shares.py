"""The time of one search by the clock alone, and the largest shares of it that its stages may take."""

from __future__ import annotations

from collections.abc import Callable

# Shares of the whole time budget, in the order of the stages.
MOST_GRADIENT_SAMPLE = 0.1  # for training and measuring the gradient noise scale
SECOND_BASELINE_ENDS_BY = 0.65  # a second probe of the baseline: interference may mislead a single one
THIRD_BASELINE_ENDS_BY = 0.3  # a third and a fourth
MOST_LENGTHENING = 0.05  # added to such a probe while the rate is still unknown
MOST_PROFILING = 1 / 30  # less than a probe of a short search
MOST_PREDICTING = 0.1  # for the shape run
MOST_COMPILING = 0.1  # for a first compilation on a CPU, where it loses as often as it gains
MOST_RESERVED = 0.4  # kept while exploring; more of a short budget, once there is something to confirm
MOST_WAITING = 0.1  # for a quiet machine: longer waiting is worth less than rounds
MOST_CHECKING = 0.25  # for a precision check
MOST_LATE = 0.05  # a round that is expected to end later does not begin
MOST_ABLATION = 0.2  # kept to take changes back after the confirmation
# Share of the time left.
FIRST_SHARE = 0.25  # for the first probe of the baseline: above it windows are shorter


class TimeShares:
    """The time budget of one run as far as a clock and the user's seconds tell: elapsed time, and fixed shares."""

    def __init__(self, seconds: float, clock: Callable[[], float], began: float) -> None:
        """`began` is the moment of `clock`, in seconds, at which the search began."""
        self.seconds, self._clock, self._began = seconds, clock, began

    @property
    def elapsed_seconds(self) -> float:
        """The seconds that this run has taken so far."""
        return self._clock() - self._began

    @property
    def left_seconds(self) -> float:
        """The seconds left for search and confirmation; below 0 once the budget is overrun."""
        return self.seconds - self.elapsed_seconds

    @property
    def gradient_sample_seconds(self) -> float:
        """The seconds that a sample of gradients may take."""
        return MOST_GRADIENT_SAMPLE * self.seconds

    @property
    def lengthening_seconds(self) -> float:
        """The seconds by which a probe of the baseline may be longer than usual."""
        return MOST_LENGTHENING * self.seconds

    def affords_baseline(self, seconds: float, known: int) -> bool:
        """Return whether a probe of the baseline in so many seconds, after `known` others, ends early enough."""
        share = THIRD_BASELINE_ENDS_BY if known > 1 else SECOND_BASELINE_ENDS_BY
        return self.elapsed_seconds + seconds <= share * self.seconds

    @property
    def compiling_seconds(self) -> float:
        """The seconds that a first compilation on a CPU may take."""
        return MOST_COMPILING * self.seconds

    @property
    def late_seconds(self) -> float:
        """The seconds after the budget's end by which a round of the confirmation may end."""
        return MOST_LATE * self.seconds
