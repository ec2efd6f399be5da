"""Says why a search ends without a recommendation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from autotune.core.records import StudyRequest
from autotune.core.results import Outcome
from autotune.harmless import cropped
from autotune.study.history import History
from autotune.study.recommendation import UNANSWERED
from autotune.study.shown import moving, shown_config
from autotune.study.summary import ConfigSummary
from autotune.study.unstable_baseline import ends_search, why_unstable
from autotune.study.valid_probes import Judged
from autotune.study.view import StudyView
from autotune.units import counted


def all_failed(candidates: Sequence[ConfigSummary], request: StudyRequest) -> str:
    """Return why no candidate may be recommended: how each failed when it was re-measured, and what may help."""
    reasons = [f"{shown_config(c.config.values, moving(request))}: {_reason(c)}" for c in candidates]
    listed = "; ".join(reasons) or "nothing was measured"
    if any(c.refused and not c.failure for c in candidates):
        return (
            f"No configuration that ran may be recommended, and all others failed when re-measured: {listed}. The "
            f"limits or the precisions that you allow probably leave too little. Allow more of either."
        )
    failing = [first for first in map(_first_failure, candidates) if first is not None]
    if any(verdict.constraints["memory"] <= 0 < verdict.constraints["stability"] for _, verdict in failing):
        advice = "Training nearly diverges. Lower the learning rate in optimizer(params) of the target."
    elif failing and all(trial.result.outcome is Outcome.TIMEOUT for trial, _ in failing):
        advice = "The machine was probably overloaded, or your data stopped coming. Search again when it is quiet."
    else:
        advice = "Memory is probably too tight here. Search again with more --headroom, or a smaller --batch."
    return f"All configurations failed when re-measured: {listed}. {advice}"


def _first_failure(candidate: ConfigSummary) -> Judged | None:
    probes = map(Judged, candidate.trials, candidate.verdicts)
    return next((one for one in probes if not one.verdict.feasible), None)


def _reason(candidate: ConfigSummary) -> str:
    refused = candidate.refused.text if candidate.refused else ""
    return (candidate.failure or refused).rstrip(".")


def unanswered(view: StudyView) -> str:
    """Return why a study that is not being searched has no recommendation."""
    if not view.judged:
        return "No probe has finished."
    if any(verdict.feasible for _, verdict in view.judged):
        return UNANSWERED
    ended = [one for one in view.trials if ends_search(one, view.request)]
    return why_unstable(ended, view.request) if ended else nothing_usable(view.folder, view.judged)


def nothing_usable(folder: Path, judged: Sequence[Judged]) -> str:
    """Return why a search ends without a candidate: what went wrong most often, and where to look."""
    failed = [one for one in judged if not one.verdict.feasible]
    kinds = Counter(map(_kind, failed))
    worst = max(failed, key=lambda one: kinds[_kind(one)], default=None)
    reason = worst.verdict.why.rstrip(".") if worst else "nothing was probed"
    full = any(verdict.constraints["memory"] > 0 for _, verdict in judged)
    is_unstable = worst is not None and worst.verdict.constraints["stability"] > 0
    lower = "; a lower learning rate, or other data, may help" if is_unstable else ""
    advice = "; a smaller --batch or a larger --memory-limit may help" if full else lower
    return (
        f"None of {counted(len(judged), 'probe')} was usable. Most often: {cropped(reason)}. Look with "
        f"`autotune show {folder} --failed`{advice}."
    )


def baseline_alone(baseline: ConfigSummary, history: History, folder: Path) -> str:
    """Return why a search has no answer although the baseline ran: it may not be recommended, and was alone."""
    others = [one for one in history.judged if one.trial.config != baseline.config]
    refusals = (history.refusal(one.trial.config) for one in others if one.verdict.feasible)
    refused = [why.text.rstrip(".") for why in refusals if why]
    failed = [one.verdict.why.partition("\n")[0].rstrip(".") for one in others if not one.verdict.feasible]
    only = f"Nothing that may be recommended ran: the baseline may not ({_reason(baseline)})"
    if not others:
        return (
            f"{only}, and there was no time for anything else. Search again with a longer --time-budget; the "
            f"measurements are kept."
        )
    reason, count = Counter(refused or failed).most_common(1)[0]
    often = "" if len(refused or failed) == 1 else f"{count} of them: "
    if refused:
        return f"{only}, and {counted(len(refused), 'other')} may not be recommended either. {often}{cropped(reason)}."
    return (
        f"{only}, and {counted(len(failed), 'other probe')} failed. {often}{cropped(reason)}. Look with "
        f"`autotune show {folder} --failed`."
    )


def _kind(judged: Judged) -> tuple[object, ...]:
    """Return what failures have in common that differ only in numbers: outcome and violated limits."""
    trial, verdict = judged
    return trial.result.outcome, *(name for name, excess in verdict.constraints.items() if excess > 0)
