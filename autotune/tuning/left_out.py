"""What a person is told of probes of the confirmation that others disturbed, although each was repeated. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.results import Trial
from autotune.tuning import race
from autotune.tuning.confirm import Candidate
from autotune.tuning.disturbance import disturbances
from autotune.tuning.opening import shown
from autotune.units import format_rate

MOST_TOLD = 3  # probes: the others were disturbed by the same work


def told(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Warnings: which probes were left out, and whose rounds are too few or disturbed because of it."""
    left = [trial for candidate in candidates for trial in candidate.left_out]
    warnings = []
    if left:
        warnings.append(
            f"Other work disturbed the confirmation, so {len(left)} of its probes {'is' if len(left) == 1 else 'are'} "
            f"left out: {_listed(left)}."
        )
    raced = [c for c in candidates if any(trial.purpose == "confirm" for trial in (*c.trials, *c.left_out))]
    doubtful = [c for c in raced if c.in_peace < race.FEWEST_ROUNDS and (c.left_out or c.in_peace < len(c.trials))]
    if doubtful:
        few = "; ".join(
            f"{shown(c.config)} was left in peace in {c.in_peace} of {len(c.trials) + len(c.left_out)} rounds"
            for c in doubtful[:MOST_TOLD]
        )
        kept = [trial for c in doubtful for trial in c.trials if disturbances(trial.result)]
        counts = f" What counts all the same: {_listed(kept)}." if kept else ""
        warnings.append(
            f"The confirmation was disturbed: {few}.{counts} The rates are probably too low, and which configuration "
            f"is faster is not certain. Close other work and run the same command again."
        )
    return tuple(warnings)


def _listed(trials: Sequence[Trial]) -> str:
    """`probe 7 at 125 samples/s (other processes kept ...); and 2 more`."""
    words = []
    for trial in trials[:MOST_TOLD]:
        measured = trial.result.measurement
        rate = f" at {format_rate(measured.samples_per_second)} samples/s" if measured else ""
        words.append(f"probe {trial.number}{rate} ({'; '.join(disturbances(trial.result))})")
    more = len(trials) - MOST_TOLD
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")
