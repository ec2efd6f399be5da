"""The state of a running search: progress, the best so far, the running probe, and the latest sentences."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.core.results import Measurement, Trial
from autotune.report import phrases
from autotune.report.running import STAGES, MeasuredConfig, best_factor, best_phrase
from autotune.study.progress import RunningProbe, SearchProgress
from autotune.study.shown import shown_config
from autotune.study.view import AGAIN, StudyView
from autotune.units import counted, format_seconds

LATEST_SENTENCES = 8  # sentences that are shown beside the state
BETWEEN = "between probes"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of a search: its name, and whether it is over or running."""

    name: str
    is_now: bool
    is_over: bool


@dataclass(frozen=True, kw_only=True)
class Live:
    """The state that the page of a running search shows; times since `began_at` go on in the browser."""

    stages: tuple[Stage, ...]
    began_at: str  # UTC, ISO 8601; empty: a search of an earlier version
    budget_seconds: float | None
    count: str  # `12 probes, 1 not usable`
    factor: str  # of the best so far; empty: it is the baseline, or nothing to compare
    best: str
    now: str  # the running probe, else the work between probes
    now_since: str  # start of the probe; empty: none runs


def live(view: StudyView) -> Live:
    """Return the state of the search from its probes and its sentences."""
    progress = view.progress or SearchProgress(began_at="")
    found, base = best_so_far(view), _baseline(view)
    best = (found[0].config, found[1]) if found else None
    unusable = sum(not view.verdict(trial).feasible for trial in view.trials)
    probe = progress.running
    if probe is not None and any(trial.number == probe.number for trial in view.trials):
        probe = None  # the probe has just ended
    return Live(
        stages=_stages(progress.purpose),
        began_at=progress.began_at,
        budget_seconds=progress.budget_seconds,
        count=counted(len(view.trials), "probe") + (f", {unusable} not usable" if unusable else ""),
        factor=best_factor(best, base) if best else "",
        best=f"{best_phrase(best, base)}: {phrases.configuration_phrase(best[0].values, view.knobs)}" if best else "",
        now=_named(probe, view) if probe else progress.doing or BETWEEN,
        now_since="" if probe is None else probe.began_at,
    )


def _named(probe: RunningProbe, view: StudyView) -> str:
    purpose = phrases.purpose_word(probe.purpose)
    return f"probe {probe.number}, {purpose}: {shown_config(probe.config.values, view.knobs)}"


def sentences_said(progress: SearchProgress | None) -> tuple[tuple[str, str], ...]:
    """Return the time and text of every sentence, the latest first."""
    known = progress.said if progress else ()
    return tuple((format_seconds(one.seconds), one.text) for one in reversed(known))


def best_so_far(view: StudyView) -> tuple[Trial, Measurement] | None:
    """Return the best usable probe of the search, with its measurement; None before there is one."""
    usable = [
        (verdict.value or 0.0, -trial.number, trial, measured)
        for trial in view.trials
        if trial.purpose not in AGAIN
        and (verdict := view.verdict(trial)).feasible
        and (measured := trial.result.measurement) is not None
    ]
    return max(usable, key=lambda one: one[:2])[2:] if usable else None


def _baseline(view: StudyView) -> MeasuredConfig | None:
    runs = [
        (trial.config, measured)
        for trial in view.trials
        if trial.purpose == "baseline" and (measured := trial.result.measurement) is not None
    ]
    return runs[-1] if runs else None


def _stages(purpose: str) -> tuple[Stage, ...]:
    place = [*STAGES].index(purpose) if purpose in STAGES else 0
    names = enumerate(STAGES.values())
    return tuple(Stage(name=name, is_now=number == place, is_over=number < place) for number, name in names)
