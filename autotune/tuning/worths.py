"""Probing the missing steps between baseline and recommendation, so that each change has a worth of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.guard import Guard
from autotune.records import Config
from autotune.results import Trial, Verdict
from autotune.tuning.race import TIE
from autotune.tuning.recommendation import Recommendation
from autotune.tuning.reporter import Reporter
from autotune.tuning.view import load_view
from autotune.tuning.worth import missing
from autotune.units import format_rate


def measure(
    folder: Path,
    guard: Guard,
    reporter: Reporter,
    probe: Callable[[Config], tuple[Trial, Verdict]],
    has_time: Callable[[], bool],
) -> bool:
    """Probe what is missing on the way to the recommendation of the study in `folder`; whether anything was.

    The answer is already kept, so nothing here may cost it: an interrupt ends the probing and not the search, and so
    does a fault of the machine. `has_time` is asked before each probe.
    """
    view = load_view(folder)
    wanted = [config for config in missing(view) if guard.admits(config)]
    if view.recommendation is None or not wanted or not has_time():
        return False
    reporter.note(
        f"Recommended. Measuring what each change was worth: {len(wanted)} more probe{'s' if len(wanted) > 1 else ''} "
        f"at most; Ctrl-C leaves {'them' if len(wanted) > 1 else 'it'} out."
    )
    try:
        for config in wanted:
            if not has_time():
                break
            surprise = _surprise(*probe(config), view.recommendation)
            if surprise:
                reporter.note(surprise)
    except KeyboardInterrupt:
        reporter.note("Interrupted: the recommendation stands, the steps that are missing are left out.")
    except AutotuneError as error:
        reporter.note(f"The recommendation stands, but its steps could not all be measured. {error}")
    return True


def _surprise(trial: Trial, verdict: Verdict, best: Recommendation) -> str:
    """A step that seems faster than where it leads was overlooked by the search; it has not been confirmed."""
    measured = trial.result.measurement
    rate = 0.0 if measured is None else measured.samples_per_second
    if not verdict.feasible or rate <= best.samples_per_second * (1 + TIE):
        return ""
    return (
        f"Probe {trial.number} ran at {format_rate(rate)} samples/s, measured once: perhaps faster than the "
        f"recommendation. The same command goes on and measures it again."
    )
