"""The baseline is measured first, until its rate is known well enough for comparisons (`study/baseline_rate.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from autotune.context.search_context import SearchContext
from autotune.core.notices import notice
from autotune.core.records import StudyRequest
from autotune.core.requests import ProbeBudget
from autotune.core.results import Outcome, ProbeResult, Trial, Verdict
from autotune.core.stats import FEWEST_WINDOW_BLOCKS
from autotune.errors import TargetError, UsageError
from autotune.failures.words import ended_early
from autotune.objectives import objective_of
from autotune.objectives.verdict import WORDS
from autotune.preparation.prepare import error_of_failure
from autotune.study import disk
from autotune.study.baseline_rate import has_too_few, is_known, is_narrow, why_doubtful, why_unknown
from autotune.study.history import FATAL_AT_BASELINE
from autotune.study.pace import starting_seconds
from autotune.study.unstable_baseline import ends_search, is_unstable, why_unstable
from autotune.study.valid_probes import BACK_OFF_SECONDS, Judged, is_spoiled
from autotune.tuning.probing import probe_and_tell, probe_with_retry
from autotune.units import format_durations, format_seconds, format_share

LONG_PROBE_SECONDS = 5.0  # a probe as long as this gets a sentence on where its time goes
CHANGED = "A search of the changed command or script needs --fresh."
MOST_OF_IT = 0.5  # share of a probe's seconds
LONGER_WINDOW = 3.0  # times the longest window: it narrows the interval of uneven steps by 1.7
GOES_ON = "The search goes on; what its interleaved rounds cannot tell stays undecided."
# Pauses before each probe of a baseline that is not known yet: foreign work that outlasts all is no short burst.
BASELINE_PAUSES_SECONDS = (0.0, BACK_OFF_SECONDS, 2 * BACK_OFF_SECONDS, 4 * BACK_OFF_SECONDS)


def measure_baseline(context: SearchContext) -> None:
    """Measure the baseline if it is not known yet; then make the database agree with the probe folders.

    Raises `TargetError` if it cannot run, and `UsageError` if the objective cannot be measured.
    """
    history, known = context.history, context.history.baseline_known
    runs = known is not None and known.trial.result.measurement is not None
    if known is None or (runs and not context.interrupted_confirmation and not is_known(history.baseline_probes)):
        known = trial, _ = _probed(context)
        if trial.result.outcome in FATAL_AT_BASELINE:
            failure = trial.result.failure
            assert failure is not None, "only OK has none"
            if ended_early(failure):
                failure = replace(failure, message=f"{failure.message}\n{CHANGED}")
            raise error_of_failure(trial.result.outcome, failure, disk.log_of(context.folder, trial.number))
    if ends_search(known.trial, context.request):
        ended = [trial for trial, _ in history.judged if ends_search(trial, context.request)]
        raise TargetError(why_unstable(ended, context.request))
    _check_scored(*known, context.request)
    if where := describe_seconds(known.trial.result):
        context.reporter.note(where)
    verdicts = {trial.number: verdict for trial, verdict in history.judged}
    context.store.reconcile(tuple(trial for trial, _ in history.valid), verdicts)


def describe_seconds(result: ProbeResult) -> str:
    """Return a sentence on where the time of a long probe goes; empty for one that mostly starts, as it has to."""
    if result.measurement is None or result.elapsed_seconds < LONG_PROBE_SECONDS:
        return ""
    measured, starting = result.measurement, starting_seconds(result)
    training = result.elapsed_seconds - starting
    if training < MOST_OF_IT * result.elapsed_seconds:
        return _why_starting(result, starting)
    step = sum(measured.step_seconds) / measured.steps
    waiting = f", {format_share(measured.data_wait_share)} of it waiting for data" if measured.data_wait_share else ""
    return (
        f"A probe takes {format_seconds(result.elapsed_seconds)} here: {format_seconds(training)} of training with "
        f"{format_durations(step)} a step{waiting}, and {format_seconds(starting)} to start."
    )


def _why_starting(result: ProbeResult, seconds: float) -> str:
    if not (why := result.isolation_reason):
        return ""
    why = f"each is a fresh process, because {why}" if result.isolation == "fresh" else why
    return (
        f"A probe takes {format_seconds(result.elapsed_seconds)} here, {format_seconds(seconds)} of it to start: {why}."
    )


def _check_scored(baseline: Trial, verdict: Verdict, request: StudyRequest) -> None:
    """Raise `UsageError` if the baseline ran and this machine did not measure what the objective needs."""
    if baseline.result.outcome is Outcome.OK and verdict.value is None:
        objective = objective_of(request.goal)
        raise UsageError(f"--objective {objective.name} is not possible here. {notice(objective.missing).text}")


def probe_nearest(context: SearchContext) -> None:
    """If the space excludes the baseline, probe the configuration nearest to it, so that the answer considers it."""
    baseline = context.request.baseline
    if not context.space.excludes(baseline):
        return
    nearest = context.space.nearest(baseline)
    if nearest not in context.history.probed:
        probe_and_tell(context, nearest)


def _probed(context: SearchContext) -> Judged:
    """Return the baseline's probe that counts: its rate known to 10 %, by repeated probes as far as time allows.

    A baseline that cannot run is measured once. After a probe without interference there is no pause. If the rate stays
    unknown, the search goes on: the rounds of the confirmation are interleaved, and their intervals show what they
    cannot decide.
    """
    history, config, budget = context.history, context.request.baseline, context.budget
    # With fewer steps, the rate would stay unknown if they take a second or more, and the probe would be repeated.
    usual = replace(budget.first_probe_budget, fewest_steps=FEWEST_WINDOW_BLOCKS)
    for pause in BASELINE_PAUSES_SECONDS:
        tried = history.baseline_probes
        asked = baseline_probe_budget(tried, usual, budget.lengthening_seconds)
        if pause:
            doubts = f"Probe {tried[-1].number}: {why_doubtful(tried[-1])}."
            wait = pause if is_spoiled(tried[-1].result) else 0.0
            needed = wait + history.times.expected_seconds(asked, config)
            if budget.left_seconds < needed:
                context.reporter.note(f"{doubts} There is no time to measure the baseline again.")
                break
            if not budget.affords_baseline(needed, len(tried)):
                context.reporter.note(f"{why_unknown(tried)} {GOES_ON}")
                break
            context.reporter.note(f"{doubts} The baseline is measured again.")
            if wait:
                context.pause(wait)
        judged = probe_with_retry(context, config, "baseline", probe_budget=asked)
        if judged.trial.result.measurement is None:
            if not history.baseline_probes:
                return judged
            before = history.baseline_probes[-1].number
            context.reporter.note(
                f"Probe {judged.trial.number} of the baseline {WORDS[judged.trial.result.outcome]}, but probe {before} "
                f"of it ran, and counts. {GOES_ON}"
            )
            break
        if is_unstable(judged.trial, history.request):
            return _confirmed_unstable(context, judged, asked)
        if is_known(history.baseline_probes):
            break
    else:
        context.reporter.note(f"{why_unknown(history.baseline_probes)} {GOES_ON}")
    return [one for one in history.valid if one.trial in history.baseline_probes][-1]


def _confirmed_unstable(context: SearchContext, judged: Judged, budget: ProbeBudget) -> Judged:
    """Return the probe that counts of a baseline that does not learn: one more in another process, if there is time."""
    tried = context.history.baseline_probes
    if not context.budget.affords_baseline(judged.trial.result.elapsed_seconds, len(tried)):
        return judged
    context.reporter.note(f"Probe {judged.trial.number} is {judged.verdict.why}. The baseline is measured again.")
    repeat = probe_with_retry(context, judged.trial.config, "baseline", probe_budget=budget)
    return judged if repeat.trial.result.measurement is None else repeat


def baseline_probe_budget(probes: Sequence[Trial], usual: ProbeBudget, most_seconds: float = math.inf) -> ProbeBudget:
    """Return the budget of the baseline's next probe: the usual one, or a longer one if the rate is still unknown.

    It is longer after too few steps, or after uneven steps that no interference explains: by `most_seconds` at most.
    """
    if not any(has_too_few(one) or (not is_narrow(one) and not is_spoiled(one.result)) for one in probes):
        return usual
    return replace(usual, max_seconds=min(LONGER_WINDOW * usual.max_seconds, usual.max_seconds + most_seconds))
