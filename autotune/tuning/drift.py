"""How the machine itself moved during a search, seen by probing the baseline again and again.

rate of the baseline   │×···           ×···                 ×·······     interpolated between its probes
number of the probe    │0              9                    18
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from autotune.records import Config
from autotune.results import Trial, Verdict
from autotune.tuning.disturbance import disturbances
from autotune.units import format_share

REFERENCE_EVERY = 8  # search probes between two of the baseline (docs/notes/timing.md 3)
MOST_DRIFT = 0.05  # of the baseline's rate: less is noise between probes (the same section)
SLOW = 2.0  # times a typical probe: a baseline that takes longer is too dear to be probed again and again
Judged = Sequence[tuple[Trial, Verdict]]


def is_due(judged: Judged, typical_seconds: float) -> bool:
    """Whether the baseline should be probed again now. Never before so many search probes as lie between two."""
    since = 0
    last: Trial | None = None
    for trial, verdict in judged:
        if trial.purpose in ("baseline", "reference"):
            if not verdict.feasible:
                return False
            last, since = trial, 0
        since += trial.purpose == "search"
    return last is not None and since >= REFERENCE_EVERY and last.result.elapsed_seconds <= SLOW * typical_seconds


def references(judged: Judged, baseline: Config) -> list[tuple[int, float]]:
    """Number and rate (samples/s) of every probe of the baseline that others left in peace, the first one first."""
    return [
        (trial.number, verdict.value)
        for trial, verdict in judged
        if trial.purpose in ("baseline", "reference") and trial.config == baseline
        if verdict.feasible and verdict.value and not disturbances(trial.result)
    ]


def factor(number: int, rates: Sequence[tuple[int, float]]) -> float:
    """How fast the machine was at probe `number`, 1 being its speed at the first of `rates`.

    Linear between two references, constant beyond the last; 1 throughout unless one of them moved by more than 5 %,
    because the noise of single probes must not reorder anything.
    """
    if not moved(rates):
        return 1.0
    numbers, values = zip(*rates, strict=True)
    return float(np.interp(number, numbers, values) / values[0])


def moved(rates: Sequence[tuple[int, float]]) -> bool:
    """Whether the baseline's rate ever differed by more than 5 % from its first."""
    return any(abs(rate / rates[0][1] - 1) > MOST_DRIFT for _, rate in rates)


def corrected(judged: Judged, baseline: Config) -> list[tuple[Trial, Verdict]]:
    """The same probes, their rates as they would have been had the machine stayed as it was at first."""
    rates = references(judged, baseline)
    return [
        (
            trial,
            verdict if verdict.value is None else replace(verdict, value=verdict.value / factor(trial.number, rates)),
        )
        for trial, verdict in judged
    ]


def told(judged: Judged, baseline: Config) -> str:
    """What the latest reference says, in a sentence; empty if the machine stands where it stood."""
    rates = references(judged, baseline)
    if len(rates) < 2 or rates[-1][0] != judged[-1][0].number or not moved([rates[0], rates[-1]]):
        return ""
    return (
        f"The baseline now runs at {format_share(rates[-1][1] / rates[0][1])} of its first rate: this machine drifts. "
        f"Leaders are chosen by rates corrected for it."
    )
