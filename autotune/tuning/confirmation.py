"""The confirmation at the end of a search: the finalists and the baseline are measured again, in interleaved rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.answer import confirmation_rounds
from autotune.answer.choice import TIE, finalists
from autotune.answer.confirmation_end import SURE_ROUNDS
from autotune.answer.confirmation_rounds import (
    HALVED_AFTER,
    confirm_in_rounds,
    fewest_rounds,
    finalists_left,
    probe_count,
)
from autotune.answer.no_answer import baseline_alone, nothing_usable
from autotune.context.search_context import SearchContext
from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.records import Config
from autotune.core.results import Trial
from autotune.errors import NoRecommendation
from autotune.precision.stage import refused_summaries
from autotune.study.shown import moving, shown_config
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import Judged, is_crowded, is_spoiled, severity
from autotune.tuning.finalists import check_precision, settled_finalists
from autotune.tuning.probed_scores import search_scores
from autotune.tuning.probing import probe_with_repeat, probe_with_retry
from autotune.tuning.simplification import preferred
from autotune.units import counted, format_seconds

MOST_CONFIRMATIONS = 3  # if no finalist holds: memory or the machine is then at its limit, and more would not help


def confirm(context: SearchContext) -> list[ConfigSummary]:
    """Measure the finalists in rounds; return them, the baseline if it runs, and one of each refused precision.

    If all finalists fail, the next best configurations of the search are checked and confirmed, as far as time allows.
    Raises `NoRecommendation` if no probe was usable, and what `check_precision` raises.
    """
    confirmed: list[ConfigSummary] = []
    baseline: list[ConfigSummary] = []
    for number in range(MOST_CONFIRMATIONS):
        if number:
            check_precision(context)  # of those that take the places of the failed ones
        chosen = settled_finalists(context)
        baseline = baseline or _baseline(context)
        if not chosen and (number or not baseline):
            break
        unconfirmed = [] if chosen else _unconfirmed(context, is_compared=not (baseline and baseline[0].refused))
        if not (confirmed or chosen or unconfirmed) and baseline and baseline[0].refused:
            raise NoRecommendation(baseline_alone(baseline[0], context.history, context.folder))
        if unconfirmed or (not chosen and not _has_time_for_baseline(context)):
            baseline = [_as_probed(context, baseline[0])]
            confirmed += [_as_probed(context, one) for one in unconfirmed]
            _tell_unconfirmed(context, confirmed, baseline[0])
            break
        if number:
            reasons = "; ".join(
                f"{shown_config(one.config.values, moving(context.request))}: {one.failure}"
                for one in confirmed
                if one.failure
            )
            context.reporter.note(f"All finalists failed when re-measured ({reasons}). Trying the next ones.")
        finished = _confirm_in_rounds(context, [*chosen, *(one for one in baseline if not one.failure)])
        baseline = [next((one for one in finished if one.config == old.config), old) for old in baseline]
        latest = [one for one in finished if one.config != context.request.baseline]
        confirmed += latest
        holding = [one for one in (*latest, *baseline) if not one.failure]
        if any(one in holding for one in latest) or (holding and context.budget.spare_seconds < 0):
            break
    if not confirmed and not baseline:
        raise NoRecommendation(nothing_usable(context.folder, context.history.judged))
    return [*confirmed, *baseline, *refused_summaries(context.history)]


def _unconfirmed(context: SearchContext, *, is_compared: bool) -> list[ConfigSummary]:
    """Return the probed configuration to compare with the baseline if there is no time for rounds; at most one.

    If interference slowed one of the two probes, it is returned only if it was faster than the baseline all the same:
    interference only slows a probe down. If other processes kept the baseline from the cores, a faster configuration is
    left open and not recommended (`choice.py`). If there is nothing to compare with, because the baseline may not be
    recommended, an answer from a slowed probe is better than none, and says so.
    """
    history, baseline = context.history, context.request.baseline
    first = preferred(context) if context.objective.is_speed else None
    found = [*([first] if first else []), *finalists(history.drift_corrected, context.request)]
    probed = search_scores(history)
    may = [one for one in found if one.config in probed.keys() - {baseline} and not history.refusal(one.config)][:1]
    if not (is_compared and may):
        return may
    before, other = (_calmest(context, config) for config in (baseline, may[0].config))
    if before is None or other is None:
        return []
    if not (is_spoiled(before.trial.result) or is_spoiled(other.trial.result)):
        return may
    on_its_gpu = is_spoiled(before.trial.result) and not is_crowded(before.trial.result)
    is_faster = (other.verdict.value or 0.0) > (1 + TIE) * (before.verdict.value or 0.0)
    return may if context.objective.is_speed and is_faster and not on_its_gpu else []


def _baseline(context: SearchContext) -> list[ConfigSummary]:
    """Return the baseline, if it runs; a baseline that the space excludes is measured for comparison only."""
    config = context.request.baseline
    if not context.history.baseline_runs:
        return []
    excluded = context.space.excludes(config)
    refused = notice(Code.MEASURED_FOR_COMPARISON, why=excluded) if excluded else None
    return [ConfigSummary(config=config, refused=refused or context.history.refusal(config))]


def _has_time_for_baseline(context: SearchContext) -> bool:
    """Return whether there is time to measure the baseline again where no other configuration is compared with it."""
    return context.budget.affords_round(
        [context.request.baseline] * fewest_rounds(1), context.budget.round_probe_budget
    )


def _as_probed(context: SearchContext, one: ConfigSummary) -> ConfigSummary:
    """Return the summary with its least disturbed probe, the latest of several, as its only round."""
    probe = _calmest(context, one.config)
    assert probe is not None, "it ran"
    return replace(one, trials=(probe.trial,), verdicts=(probe.verdict,))


def _calmest(context: SearchContext, config: Config) -> Judged | None:
    ran = [one for one in context.history.valid if one.trial.config == config and one.verdict.feasible]
    return min(reversed(ran), key=lambda one: severity(one.trial.result), default=None)


def _tell_unconfirmed(context: SearchContext, confirmed: Sequence[ConfigSummary], baseline: ConfigSummary) -> None:
    what = f"Probe {baseline.trials[0].number} of the baseline is used"
    if confirmed:
        what = f"Probes {baseline.trials[0].number} (the baseline) and {confirmed[0].trials[0].number} are compared"
    alone = " Only the baseline ran." if context.history.probed == {baseline.config} else ""
    context.reporter.note(f"The time budget is too short to confirm an answer.{alone} {what}.")


def _confirm_in_rounds(context: SearchContext, candidates: list[ConfigSummary]) -> list[ConfigSummary]:
    budget, known = context.budget, len(context.interrupted_confirmation)
    configs = [one.config for one in candidates]
    finalist_total = sum(config != context.request.baseline for config in configs)
    others, fewest = len(configs) - finalist_total, fewest_rounds(len(configs))
    plan = budget.confirmation_plan(configs, finalist_total, known)
    probe_budget, missing = plan.probe_budget, max(0, probe_count(finalist_total, plan.rounds, others) - known)
    briefly = ", measured briefly" if probe_budget != budget.round_budget_of(configs) else ""
    is_usual = plan.rounds >= confirmation_rounds.USUAL_ROUNDS
    more = f", up to {confirmation_rounds.MOST_CONFIRMATION_ROUNDS} rounds if the gain is still open" * is_usual
    more += ", more rounds while there is time" * (plan.rounds < fewest)
    seconds = format_seconds(missing * plan.probe_seconds)
    context.reporter.note(f"{_announced(finalist_total, others, plan.rounds)}{briefly}, about {seconds}{more}.")
    least = max(0, probe_count(finalist_total, min(fewest, plan.rounds), others) - known)
    begun = 0

    def probe(config: Config) -> Judged:
        nonlocal begun
        begun += 1
        kept = max(0, least - begun) * plan.probe_seconds
        return probe_with_repeat(
            context,
            config,
            "confirm",
            probe_budget=probe_budget,
            has_time=lambda: budget.affords_repeat(config, probe_budget, kept),
        )

    def again(trial: Trial) -> Judged | None:
        slow = f"Probe {trial.number} was far slower than the other rounds of its configuration, cause unknown."
        if not budget.affords_repeat(trial.config, probe_budget, max(0, least - begun) * plan.probe_seconds):
            context.reporter.detail(f"{slow} There is no time for another try.")
            return None
        context.reporter.detail(f"{slow} Trying once more.")
        return probe_with_retry(context, trial.config, "confirm", probe_budget=probe_budget, repeats=trial.number)

    return confirm_in_rounds(
        candidates, plan.rounds, probe, context.request, resumed=context.interrupted_confirmation, again=again,
        affords=lambda running, is_open: budget.affords_round(
            running, probe_budget, 0.0 if is_open else budget.ablation_seconds
        ),
        overruns=lambda running: not budget.affords_round(running, probe_budget, -budget.late_seconds),
    )  # fmt: skip


def _announced(finalists: int, others: int, rounds: int) -> str:
    """Return "Confirming 9 configurations in up to 12 interleaved rounds of separate processes ..."."""
    most = "up to " if rounds > SURE_ROUNDS else ""
    halved = [
        str(after)
        for after in HALVED_AFTER
        if after < rounds and finalists_left(finalists, after) < finalists_left(finalists, after - 1)
    ]
    left = f", the slower half dropped after {' and '.join(halved)}" if halved else ""
    count = counted(finalists + others, "configuration")
    return f"Confirming {count} in {most}{counted(rounds, 'interleaved round')} of separate processes{left}"
