"""The exploration: ask the sampler, probe, tell it, until a rule says that there is little left to gain.

ask ─► probe ─► tell ─► ... reason to stop? ─► what is known of the configurations that were not probed
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from autotune.context.search_context import SearchContext
from autotune.context.trades import TradeExclusion
from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Config
from autotune.core.requests import ProbeRequest
from autotune.fleet.records import FleetWorker
from autotune.sentences import capitalized
from autotune.study import disk
from autotune.study.history import History
from autotune.study.machines import at_home, machine_speed, of_machine, quarantine_reasons
from autotune.study.valid_probes import describe_drift, is_baseline_due
from autotune.tuning.failed_configurations import FailedConfigurations
from autotune.tuning.probing import probe_with_repeat, probe_with_retry
from autotune.tuning.turns import Turns
from autotune.units import counted, format_seconds

# Probes without a gain: a sampler that learns only from values needs this many (docs/notes/search.md 2).
PATIENCE_PROBES = 15
# Two proposals in a row with a smaller expected gain, after as many probes: the median search then recommends a
# configuration that is 0 % (well-specified machines) or 1.2 % (misspecified machines) below the best, after 8 probes
# (docs/notes/search.md 2).
LITTLE_GAIN, VAIN_PROPOSALS, FEWEST_PROBES = 0.02, 2, 8
LEAST_PROGRESS = 0.01  # share of the best: less is no gain, and no smaller bound is reported (docs/notes/search.md 2)
UNBELIEVABLE_GAIN = 1.0  # a bound of "at most twice as fast" or more says nothing
NONE_FAILED = FailedConfigurations()


def explore(context: SearchContext) -> None:
    """Probe what the sampler proposes until a rule ends it; on all workers at once, if there are several."""
    ruled_out = set[TradeExclusion]()
    with Turns(context) as turns:
        while (why := reason_to_stop(state_of(context, turns.running))) is None or turns.running:
            if why is None and turns.has_free_worker():
                for line in context.trades.exclusions(ruled_out):
                    context.reporter.detail(line)
                turns.begin(partial(_turn, turns))
            else:
                turns.wait()
    context.reporter.detail(f"Search finished: {why}.")


def bound_the_rest(context: SearchContext) -> Notice:
    """Return what is known about the configurations that were not probed."""
    history, study, better = context.history, context.store.study, context.objective.better
    learned = len(history.search_results) >= FEWEST_PROBES  # before that the bound is that of the prior
    rest = context.sampler.faster_elsewhere(study) if learned else None
    configs = context.space.configs
    space = len(configs) + sum(config not in configs for config in set(history.probed))
    failed = FailedConfigurations.of(history)
    found = bound(len(history.probed), len(context.trades.remaining()), rest, better, space, failed)
    if found.code is Code.BOUNDED:
        context.reporter.detail(f"{capitalized(found.text)}.")
    return found


def affords_probe(context: SearchContext, config: Config | None = None) -> bool:
    """Return whether the budgets of time and of probes allow one more after the exploration: of `config`, if given."""
    asked = context.settings.probes
    return context.budget.affords_probe(config) and (asked is None or state_of(context).probed < asked)


def state_of(context: SearchContext, pending: int = 0) -> SearchState:
    """Return the state of the search while `pending` probes are running."""
    history, budget, asked = context.history, context.budget, context.settings.probes
    found = history.search_results
    return SearchState(
        values=[verdict.value if verdict.feasible else None for _, verdict in found],
        remaining=len(context.trades.remaining()),
        elapsed_seconds=budget.elapsed_seconds,
        budget_seconds=budget.seconds,
        reserve_seconds=budget.reserve_seconds,
        next_seconds=context.time_guard.shortest_probe_seconds(),
        probes=asked,
        reserved=0 if asked is None else min(context.objective.probes_after(context.request.goal), asked // 3),
        probed=pending + sum(trial.purpose == "search" and trial.number >= history.first_number for trial, _ in found),
        promises=context.store.promises,
    )


def _turn(turns: Turns, context: SearchContext, worker: FleetWorker | None) -> None:
    """Probe the next proposal, or the baseline if it is due; each worker begins with the baseline."""
    history, baseline = context.history, context.request.baseline
    own = history.judged if worker is None else of_machine(history.judged, worker.name)
    since_begun = [trial.config for trial, _ in own if trial.number >= history.first_number]
    is_new = worker is not None and baseline not in since_begun
    is_due = is_new or is_baseline_due(own, baseline, history.times.typical_seconds)
    if is_due and _affords_reference(context):
        _probe_reference(turns, context, worker)
    else:
        _probe_next(context)


def _probe_next(context: SearchContext) -> None:
    attempt = number, _ = disk.new_attempt(context.folder, ProbeRequest)
    time_guard = context.time_guard
    with time_guard.within(context.budget.next_probe_seconds(time_guard.shortest_probe_seconds())):
        config = context.store.ask(context.sampler, number)
    try:
        with context.guard.pending(config):
            trial, verdict = probe_with_repeat(context, config, "search", attempt)
    except BaseException:  # Ctrl-C too: the attempt is closed in the database, and the error is raised again
        with suppress(Exception):  # the database may have failed itself; the first error is the one to show
            context.store.abandon(number)
        raise
    result, verdict = at_home(
        trial.result, verdict, machine_speed(trial.result.worker, context.history.baseline_rates_by_machine)
    )
    context.store.tell(number, verdict, result=result, final=trial.number)


def _affords_reference(context: SearchContext) -> bool:
    budget = context.budget
    return (
        context.history.times.expected_seconds(budget.usual_probe_budget, context.request.baseline)
        <= budget.explorable_seconds
    )


def _probe_reference(turns: Turns, context: SearchContext, worker: FleetWorker | None) -> None:
    """Probe the baseline once more; say so if the machine has become slower or faster, or differs from the others."""
    history, baseline = context.history, context.request.baseline
    trial, verdict = probe_with_retry(context, baseline, "reference")
    text = describe_drift(of_machine(history.judged, trial.result.worker), baseline)
    if text:
        context.reporter.detail(text)
    if worker is None:
        return
    rates = {name: known[-1][1] for name, known in history.baseline_rates_by_machine.items()}
    why = (
        quarantine_reasons(rates).get(worker.name, "")
        if verdict.feasible
        else f"the baseline ends as {trial.result.outcome} there"
    )
    turns.mark(worker, reference=rates.get(worker.name), quarantined=why)
    if why:
        context.reporter.note(f"Worker {worker.name} gets no more probes: {why}.")


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """The state of a search that decides whether it goes on."""

    values: Sequence[float | None]  # samples/s of every search probe in order, None where infeasible
    remaining: int  # configurations that may still be probed
    elapsed_seconds: float
    budget_seconds: float
    reserve_seconds: float  # kept for the confirmation and what comes before and after it, or as a margin
    next_seconds: float  # of the shortest probe that is left
    probes: int | None  # most probes of this run; None: any number
    probed: int  # in this run
    reserved: int = 0  # of `probes`, for stages after the exploration: one in three at most
    promises: Sequence[float | None] = ()  # of each proposal of this run: expected gain over the best; None: unknown


def reason_to_stop(state: SearchState) -> str | None:
    """Return why the search ends here, in words; None if it goes on."""
    if state.remaining == 0:
        return "no configuration is left to try"
    if state.probes is not None and state.probed >= state.probes - state.reserved:
        rest = f", except for {state.reserved} for the refinement" if state.reserved else ""
        return f"the limit of {counted(state.probes, 'probe')} is reached{rest}"
    needed = state.elapsed_seconds + state.next_seconds + state.reserve_seconds
    if needed > state.budget_seconds:
        kept = format_seconds(state.reserve_seconds)
        rest = f", except for {kept} that are kept" if state.reserve_seconds else ""
        return f"the time budget is used up{rest}"
    since = min(probes_without_gain(state.values), state.probed)  # a resumed search gets as many probes of its own
    if since >= PATIENCE_PROBES and not any(state.values):
        return f"none of {len(state.values)} probes was usable"
    if since >= PATIENCE_PROBES:
        return f"the last {since} probes gained less than {LEAST_PROGRESS:.0%}"
    if promise_little(state.promises, len(state.values)):
        return f"the expected gain of the last {VAIN_PROPOSALS} proposals was below {LITTLE_GAIN:.0%} each"
    return None


def promise_little(promises: Sequence[float | None], probes: int) -> bool:
    """Return whether the latest proposals had next to no expected gain, after enough probes for a reliable expectation.

    `promises` are expected improvements as shares of the best so far, times the probability to fit in memory; `probes`
    is the number of all probes so far.
    """
    latest = promises[-VAIN_PROPOSALS:]
    enough = len(latest) == VAIN_PROPOSALS and probes >= FEWEST_PROBES
    return enough and all(promise is not None and promise < LITTLE_GAIN for promise in latest)


def probes_without_gain(values: Sequence[float | None]) -> int:
    """Return how many probes ago the best value last grew by more than `LEAST_PROGRESS`."""
    best, since = 0.0, 0
    for value in values:
        since += 1
        if value is not None and value > best * (1 + LEAST_PROGRESS):
            best, since = value, 0
    return since


def bound(
    measured: int, remaining: int, rest: float | None, better: str = "faster", space: int = 0,
    failed: FailedConfigurations = NONE_FAILED,
) -> Notice:  # fmt: skip
    """Return the strongest of three statements that holds (docs/notes/search.md 5).

    `measured` configurations were probed. `remaining` is how many might still be: without those that are known to fail,
    or to be no better. `rest` is the largest share by which any other configuration is expected to be `better`, with 90
    % probability; None if unknown. `space` is the number of all configurations, as the head of the search counts them.
    `failed` are those of the probed that did not run: of some of them the rates are unknown.
    """
    if not remaining:
        left_out = max(0, space - measured) or None
        if failed.unknown:
            return notice(
                Code.ALL_TRIED,
                measured=measured - failed.unknown,
                total=max(space, measured),
                hung=failed.hung or None,
                crashed=failed.crashed or None,
                failed=len(failed.errors) or None,
                left_out=left_out,
            )
        return notice(Code.ALL_MEASURED, measured=measured, left_out=left_out, better=better)
    if rest is None or rest >= UNBELIEVABLE_GAIN:
        return _sampled(measured, max(space, measured + remaining), failed)
    return notice(Code.BOUNDED, rest=max(rest, LEAST_PROGRESS), better=better)


def recounted(certificate: Notice, history: History) -> Notice:
    """Return the certificate of a sample, with the configurations that rounds have probed since counted too."""
    if certificate.code is not Code.SAMPLED:
        return certificate
    probed, total = len(history.probed), int(certificate.figure("total"))
    return _sampled(probed, max(total, probed), FailedConfigurations.of(history))


def _sampled(probed: int, total: int, failed: FailedConfigurations) -> Notice:
    return notice(Code.SAMPLED, measured=probed, total=total, failed=failed.total or None)
