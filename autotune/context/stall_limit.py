"""How long a probe may be silent while it trains: a share of the time budget, and long enough for what is only slow.

A limit from before the first probe must leave time for a compilation and for any data set. Once the baseline has run,
its own silences are known, and a hang costs no more than a share of a short time budget.
"""

from __future__ import annotations

from msgspec.structs import replace

from autotune.core.records import Config
from autotune.core.requests import ProbeBudget
from autotune.core.results import Trial
from autotune.knobs import compiles, loader_workers
from autotune.study.history import History
from autotune.study.pace import starting_seconds

MOST_SILENT = 0.15  # share of the time budget
MOST_SILENT_OF_OWN_LOOP = 0.5  # the same for a loop of the user's own, which may evaluate and be silent
LEAST_SECONDS = 10.0  # a machine that swaps, or that others use, stops a process for seconds
PATIENCE = 10.0  # times the longest silence known, of larger batches in proportion
# Phases in which the first step or others are made; the window has many, which are timed one by one.
STEPPING = ("warm-up", "alone", "worst", "validate")


def with_stall_limit(budget: ProbeBudget, config: Config, history: History, seconds: float, left: float) -> ProbeBudget:
    """Return `budget` with the longest silence of a probe of `config` while it trains.

    The search has `seconds`, and `left` of them are left. It is never longer than that of `budget`, which remains until
    a probe has run, for what compiles, and for the baseline, which is known to run: its silences are pauses. Starting,
    loading and building keep their limits: a fresh process takes longer for these than the forked one of the baseline.
    A `--step-timeout` of the user's replaces all of it (`core/requests.patient`).
    """
    ran = [trial for trial, _ in history.judged if trial.result.measurement is not None]
    if not ran or compiles(config) or config == history.request.baseline:
        return budget
    silence = max(_longest_silence(trial) * max(1.0, config.batch_size / trial.config.batch_size) for trial in ran)
    hiring = loader_workers(config) * max(starting_seconds(trial.result) for trial in ran)
    share = MOST_SILENT_OF_OWN_LOOP if history.request.facts.owns_loop else MOST_SILENT
    limit = max(LEAST_SECONDS, min(left, max(share * seconds, PATIENCE * silence))) + hiring
    return replace(
        budget,
        first_step_deadline_seconds=min(budget.first_step_deadline_seconds, limit),
        step_deadline_seconds=min(budget.step_deadline_seconds, limit),
    )


def _longest_silence(trial: Trial) -> float:
    """Return the seconds of the longest silence that this probe can have had while it trained, at most."""
    measured = trial.result.measurement
    assert measured is not None, "it ran"
    phases = [trial.result.phase_seconds.get(name, 0.0) for name in STEPPING]
    return max(*phases, *measured.step_seconds, *measured.warmup_seconds, measured.paused_seconds)
