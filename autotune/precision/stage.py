"""The precision check: each arithmetic of a finalist is compared with that of the user's code, once per study.

    finalists ─► one not yet judged? compare it ─► refused? its configurations are out ─► finalists ─► ...

Every check is kept in the study, and `following` decides from these alone which check to run next: a resumed search
runs only the missing ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from autotune.answer import choice
from autotune.context.search_context import SearchContext
from autotune.core.records import Config
from autotune.core.requests import of_study
from autotune.core.results import Outcome
from autotune.errors import NoRecommendation
from autotune.knobs import KNOBS, loader_workers, worker_knob
from autotune.knobs.declared import text
from autotune.knobs.parsing import option
from autotune.precision.arithmetic import full_precision, names, own_arithmetic, precision_of, reference_phrase
from autotune.precision.duration import CHECK_STEPS, SEED_SECONDS, check_batch
from autotune.precision.judge import PrecisionCheck, Thresholds, judge, pooled
from autotune.precision.records import ROLES, PrecisionCheckRequest, PrecisionCheckResult
from autotune.study.history import History
from autotune.study.pace import starting_seconds
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import Judged
from autotune.targets.commands.command import is_command

FULL_SEEDS = 3  # the fewest seeds that give an interval (docs/notes/precision.md 3)
MOST_SEEDS = 12  # the interval is a third as wide as with three; a check that is still open then stays open
CHECK_TRIES = 2  # of a check that crashed: it may have been an accident
MORE_TIME = 2.0  # a check that was cut short is run again if there are so many times the seconds that it had
MORE_STEPS = 4  # times the steps where full precision learned nothing
MOST_STEPS = 800  # of a check
LONGER_SHARE = 0.5  # of the time that a check may take, for one of more steps: rounds keep the rest


def compare_losses(context: SearchContext, finalists: Callable[[], Sequence[ConfigSummary]]) -> None:
    """Compare the losses of `finalists`, and those of the baseline, with those of the arithmetic of the user's code.

    `finalists` is called again after each comparison: a refused arithmetic gives its places to others. Where there is
    no time to compare, the precision stays undecided. Raises `NoRecommendation` if every configuration that could be
    confirmed is refused, and `EnvironmentUnfit`.
    """
    history, baseline = context.history, context.request.baseline
    own = [baseline] if history.baseline_runs else []  # it wins among equals, even if it is not the fastest
    while context.budget.affords_precision_check:
        wanted = [*(one.config for one in finalists()), *own]
        unknown = next((config for config in wanted if _next(context, config) is not None), None)
        if unknown is None:
            break
        _compare(context, unknown)
    if (refused := _refused(history)) and not choice.finalists(trusted_probes(history), context.request):
        raise NoRecommendation(_all_refused(context, refused))


def trusted_probes(history: History) -> list[Judged]:
    """Return the probes whose precision is not refused, with their values at the initial speed of the machine."""
    return [one for one in history.drift_corrected if not history.refusal(one.trial.config)]


def _all_refused(context: SearchContext, refused: Sequence[ConfigSummary]) -> str:
    """Return why no configuration may be recommended, and how one may be."""
    reasons = "; ".join(one.refused.text for one in refused if one.refused)
    own, facts = own_arithmetic(context.request.facts), context.request.facts
    differing = (
        one for one in KNOBS if any(precision_of(it.config).get(one.name) != own.get(one.name) for it in refused)
    )
    exact = " ".join(f"{option(one.name)} {text(own[one.name])},..." for one in differing)
    return (
        f"No configuration that ran may be recommended: {reasons}. The model or its loss is probably not suited to "
        f"this arithmetic. Allow {reference_phrase(facts)} with {exact}, or skip this check (--stability off)."
    )


def refused_summaries(history: History) -> list[ConfigSummary]:
    """Return the fastest configuration of each refused precision, with the reason; never the baseline."""
    return [one for one in _refused(history) if one.config != history.request.baseline]


def _refused(history: History) -> list[ConfigSummary]:
    found = []
    for verdict in history.loss_verdicts if history.request.goal.stability != "off" else ():
        own = [one for one in history.drift_corrected if precision_of(one.trial.config) == verdict.values]
        first = choice.finalists(own, history.request)[:1] if verdict.excludes else []
        found += [dataclasses.replace(one, refused=verdict.reason) for one in first]
    return found


def _compare(context: SearchContext, config: Config) -> None:
    """Run checks of this arithmetic until another would decide nothing more; report the verdict."""
    attempts = 0
    while (request := _next(context, config)) is not None and (not attempts or context.budget.affords_precision_check):
        name, full = names(request)
        seeds = f" of {len(request.seeds)} seeds" if len(request.seeds) > 1 else ""
        context.reporter.detail(
            f"Comparing the losses of {name} and {full}: {request.steps} paired steps{seeds} at batch "
            f"{request.candidate.batch_size}."
        )
        context.history.add_measured(request, _run(context, request))
        attempts += 1
    verdict = next(one for one in context.history.loss_verdicts if one.values == precision_of(config))
    if verdict.excludes:
        context.reporter.note(f"{verdict.reason.text}. It is rejected.")
    else:
        context.reporter.detail(f"{verdict.reason.text}.")


def _run(context: SearchContext, request: PrecisionCheckRequest) -> PrecisionCheckResult:
    """Return the runs of a check. A command has a process for each run, whose start counts as time, until one fails."""
    if not is_command(request.target):
        return context.run(request)
    results: list[PrecisionCheckResult] = []
    share = request.max_seconds / len(request.roles)
    starts = [starting_seconds(trial.result) for trial, _ in context.history.judged if trial.result.measurement]
    share -= min(min(starts, default=0.0), share / 2)
    for role in request.roles:
        results.append(context.run(replace(request, roles=(role,), max_seconds=share)))
        if results[-1].outcome is not Outcome.OK:
            break
    runs = tuple(run for result in results for run in result.runs)
    seconds = {
        name: sum(result.phase_seconds.get(name, 0.0) for result in results) for name in results[-1].phase_seconds
    }
    elapsed = sum(result.elapsed_seconds for result in results)
    return replace(results[-1], runs=runs, elapsed_seconds=elapsed, phase_seconds=seconds)


def _next(context: SearchContext, config: Config) -> PrecisionCheckRequest | None:
    request, history = context.request, context.history
    if request.goal.stability == "off" or full_precision(config, request.facts) == config:
        return None
    # All runs have the same number of workers, which are seeded from the run's seed: they see the same batches and the
    # same augmentation, and a slow loader takes as long as in training.
    loading = {worker_knob().name: loader_workers(config)}
    values = {**request.baseline.values, "gradient_accumulation_steps": 1, **loading}
    candidate = Config(values={**values, **precision_of(config), "batch_size": check_batch(history)})
    # A command may seed itself: then all seeds give the same run, and an interval over them means nothing.
    most, usual = (1, 1) if is_command(request.target) else (MOST_SEEDS, FULL_SEEDS)
    seeds = tuple(request.seed + number for number in range(most))
    first = PrecisionCheckRequest(
        **of_study(request),
        reference=full_precision(candidate, request.facts),
        candidate=candidate,
        steps=CHECK_STEPS,
        seeds=seeds[: usual if request.goal.stability == "full" else 1],
        max_seconds=context.budget.most_precision_check_seconds,
    )
    attempts = [pair for pair in history.precision_checks if precision_of(pair[0].candidate) == precision_of(config)]
    return following(attempts, first, seeds, Thresholds(tolerance=request.goal.loss_tolerance))


def following(
    attempts: Sequence[PrecisionCheck], first: PrecisionCheckRequest, seeds: tuple[int, ...], lines: Thresholds
) -> PrecisionCheckRequest | None:
    """Return the request after these attempts, beginning with `first`; None if no check would decide more.

    Out of memory: half the batch. A crash: once more. Full precision learned nothing: `MORE_STEPS` times the steps.
    Runs that do not decide: more of the `seeds`, three at least and then twice as many. Both only while they fit into
    the time of `first`, of which more steps get half. Too few steps in the time: once more if `MORE_TIME` times the
    time is available.
    """
    if not attempts:
        return _capped(first, first.max_seconds)
    request, result = attempts[-1]
    most = first.max_seconds * (LONGER_SHARE if request.steps > first.steps else 1.0)
    again = _capped(request, most)
    whole = pooled(attempts)[-1]
    remedy = judge(*whole, lines).remedy
    if result.outcome.out_of_memory:
        half = request.candidate.batch_size // 2
        return _capped(_at_batch(request, half), most) if half else None
    if result.outcome.retried:
        return again if sum(other.outcome.retried for _, other in attempts) < CHECK_TRIES else None
    if result.outcome is not Outcome.OK:
        return None
    if remedy == "seeds":
        known = whole[0].seeds
        more = tuple(seed for seed in seeds[: max(FULL_SEEDS, 2 * len(known))] if seed not in known)
        seconds = result.elapsed_seconds / len(request.seeds) * len(more)
        return _capped(replace(request, seeds=more), most) if more and seconds <= most else None
    if remedy == "steps":
        longer = replace(request, seeds=first.seeds, steps=MORE_STEPS * request.steps)
        most, ran = LONGER_SHARE * first.max_seconds, sum(len(run.losses) for run in result.runs)
        training = result.phase_seconds.get("measure", result.elapsed_seconds)
        added = training * (len(ROLES) * len(first.seeds) * longer.steps / ran - 1)
        fits = longer.steps <= MOST_STEPS and result.elapsed_seconds + added <= most
        return _capped(longer, most) if fits else None
    if remedy == "time" and again.max_seconds >= MORE_TIME * request.max_seconds:
        return again
    return None


def _capped(request: PrecisionCheckRequest, spare_seconds: float) -> PrecisionCheckRequest:
    most = SEED_SECONDS * len(request.seeds) * request.steps / CHECK_STEPS
    return replace(request, max_seconds=min(spare_seconds, most))


def _at_batch(request: PrecisionCheckRequest, batch_size: int) -> PrecisionCheckRequest:
    reference, candidate = (
        Config(values={**config.values, "batch_size": batch_size}) for config in (request.reference, request.candidate)
    )
    return replace(request, reference=reference, candidate=candidate)
