"""Times steps with and without something in turn, and computes by which share they are shorter without it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from autotune.child.clock import clock_for
from autotune.targets.base import Step

# Rounds of two steps with and two without; the second of each two counts. While unsure, as many rounds again.
USUAL_COMPARISONS = 12
# Steps of 13 ms that differ by 15 % by themselves show 12 % in 24 to 48 (measured).
MOST_COMPARISONS = 5 * USUAL_COMPARISONS
FEWEST_COMPARISONS = 3  # rounds, if they take long
MEDIAN_CONFIDENCE = 0.95  # of the interval of a median; with fewer than 6 rounds it spans all, with less confidence
LeavingOut = Callable[[bool], None]  # called with True: leave it out from now on; False: no more


class TurnSeconds(NamedTuple):
    """The seconds of steps as they were taken: with, without, with, ..., and what this process computed in each."""

    seconds: list[float]
    computed: list[float]

    def share(self, *, is_on_host: bool) -> float:
        """Return the share by which steps are shorter without it; 0.0 if the rounds do not agree.

        `is_on_host`: the processor time of this process counts, too, because other processes make steps longer by
        chance, but hardly change that time.
        """
        share = agreed_share(self.seconds)
        return share or (agreed_share(self.computed) if is_on_host else 0.0)


def compare(
    leave_out: LeavingOut, device: str, most_seconds: float, steps: int = 2
) -> Generator[None, Step, TurnSeconds]:
    """Take `steps` steps with and as many without, until it is sure which is shorter; each `yield` is a step.

    That is looked at after every `USUAL_COMPARISONS` rounds, up to `MOST_COMPARISONS`, and no longer than
    `most_seconds` but for the fewest. What is left out in one step may show in the next, so the second half counts.
    """
    clock, began, done, computed = clock_for(device), time.perf_counter(), 0, list[float]()

    def is_over() -> bool:
        if time.perf_counter() - began > most_seconds or done >= MOST_COMPARISONS:
            return True
        return done % USUAL_COMPARISONS == 0 and _is_sure(gained(clock.intervals()[::2]))

    with again(leave_out):
        while done < FEWEST_COMPARISONS or not is_over():
            for is_without in (False, True):
                leave_out(is_without)
                for number in range(1, steps + 1):
                    yield
                    if number in (steps // 2, steps):
                        clock.mark()
                        computed.append(time.process_time())
            done += 1
    return TurnSeconds(clock.intervals()[::2], [after - before for before, after in pairwise(computed)][::2])


def agreed_share(seconds: list[float]) -> float:
    """Return the share by which steps are shorter without it, from (with, without, with, ...); 0.0 if unsure."""
    gains = gained(seconds)
    return median(gains) if median_interval(gains)[0] > 0 else 0.0


def _is_sure(gains: list[float]) -> bool:
    low, high = median_interval(gains)
    return low > 0 or high < 0


def gained(seconds: list[float]) -> list[float]:
    """Return the shares by which each step without it is shorter than its neighbour with it."""
    return [1 - without / usual for usual, without in zip(seconds[::2], seconds[1::2], strict=True)]


def median_interval(values: list[float]) -> tuple[float, float]:
    """Return the interval of the median: between two of the values, as many from either end, whatever they follow.

    How many of `n` values lie below the median is binomial (Conover, "Practical Nonparametric Statistics", 3.2).
    """
    ordered, count = sorted(values), len(values)
    outside, below = 0, 0.0
    while outside < (count - 1) // 2:
        below += math.comb(count, outside) / 2**count
        if 2 * below > 1 - MEDIAN_CONFIDENCE:
            break
        outside += 1
    first = max(0, outside - 1)
    return ordered[first], ordered[count - 1 - first]


@contextmanager
def again(leave_out: LeavingOut) -> Iterator[None]:
    """Undo leaving out at the end, also if a step raised."""
    try:
        yield
    finally:
        leave_out(False)
