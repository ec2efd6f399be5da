"""One probe and what follows: it is repeated after a crash or interference, judged, and kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from autotune.answer.compile_advice import doubts
from autotune.context.search_context import SearchContext
from autotune.context.stall_limit import with_stall_limit
from autotune.core.codes import Code
from autotune.core.records import Config, Purpose, StudyRequest
from autotune.core.requests import ProbeBudget, ProbeRequest, of_study
from autotune.core.results import Outcome, Trial
from autotune.knobs import compiles
from autotune.knobs.parsing import typed
from autotune.objectives.verdict import WORDS
from autotune.precision.arithmetic import names_of, own_arithmetic, precision_of
from autotune.sampler.guard import Guard
from autotune.study import disk
from autotune.study.valid_probes import (
    BACK_OFF_SECONDS,
    MOST_VAIN_REPEATS,
    REPEATED,
    Judged,
    interference_causes,
    the_one_that_counts,
)

Attempt = tuple[int, Path]


def probe_with_repeat(
    context: SearchContext, config: Config, purpose: Purpose, attempt: Attempt | None = None, *,
    probe_budget: ProbeBudget | None = None, has_time: Callable[[], bool] | None = None,
) -> Judged:  # fmt: skip
    """Probe, and repeat the probe after a pause if there was interference; return the one that counts.

    `probe_budget` and `has_time` replace those of the purpose and of the search.
    """
    probe = partial(probe_with_retry, context, config, purpose, probe_budget=probe_budget, has_time=has_time)
    first = probe(attempt)
    if purpose not in REPEATED or context.history.is_busy:
        return first
    counts = with_repeat(
        first,
        lambda number: probe(repeats=number),
        has_time=has_time
        or (lambda: context.budget.affords_repeat(config, probe_budget or context.budget.search_probe_budget)),
        detail=context.reporter.detail,
        pause=context.pause,
    )
    if context.history.is_busy:
        context.reporter.note(
            f"{MOST_VAIN_REPEATS} repeats in a row also had interference; probes are no longer repeated."
        )
    return counts


def probe_and_tell(context: SearchContext, config: Config) -> None:
    """Probe for the search a configuration that its sampler did not propose, and tell the sampler."""
    context.store.add(*probe_with_repeat(context, config, "search"))


def with_repeat(
    first: Judged, again: Callable[[int], Judged], *, has_time: Callable[[], bool], detail: Callable[[str], None],
    pause: Callable[[float], None],
) -> Judged:  # fmt: skip
    """Return the probe that counts: `first`, or after interference its repeat after a pause.

    `again` repeats the probe of that number; `detail` gets what is done.
    """
    causes = interference_causes(first.trial.result)
    if not causes:
        return first
    text = f"Probe {first.trial.number}: {'; '.join(one.text for one in causes)}."
    if not has_time():
        detail(f"{text} There is no time for another try.")
        return first
    detail(f"{text} Trying once more.")
    pause(BACK_OFF_SECONDS)
    repeat = again(first.trial.number)
    return first if the_one_that_counts(first.trial, repeat.trial)[0] is first.trial else repeat


def probe_with_retry(
    context: SearchContext, config: Config, purpose: Purpose, attempt: Attempt | None = None, *,
    probe_budget: ProbeBudget | None = None, repeats: int | None = None, has_time: Callable[[], bool] | None = None,
) -> Judged:  # fmt: skip
    """Probe, and if there is time repeat the probe in another process if the failure looks like an accident.

    `probe_budget` and `has_time` replace those of the purpose and of the search.
    """
    attempts = iter((attempt,))  # the second probe has a folder of its own
    return with_retry(
        lambda: _probe(
            context, _asked(context, config, purpose, next(attempts, None), probe_budget=probe_budget, repeats=repeats)
        ),
        context.reporter.note,
        has_time or partial(_affords_retry, context, config, probe_budget),
    )


def with_retry(
    probe: Callable[[], Judged], note: Callable[[str], None], has_time: Callable[[], bool] = lambda: True
) -> Judged:
    """Probe, and repeat the probe in another process if the failure looks like an accident; return the last one."""
    judged = probe()
    outcome = judged.trial.result.outcome
    if not outcome.retried:
        return judged
    failed = f"Probe {judged.trial.number} {WORDS[outcome]}"
    if not has_time():
        note(f"{failed}. There is no time for another try.")
        return judged
    note(f"{failed}: trying once more.")
    return probe()


def _affords_retry(context: SearchContext, config: Config, probe_budget: ProbeBudget | None) -> bool:
    """Return whether a repeat is expected to end in time; without `probe_budget` it is the shortest of the search."""
    budget = context.budget
    return budget.affords_probe(config) if probe_budget is None else budget.affords_repeat(config, probe_budget, 0.0)


def _asked(
    context: SearchContext, config: Config, purpose: Purpose, attempt: Attempt | None, *,
    probe_budget: ProbeBudget | None, repeats: int | None,
) -> tuple[ProbeRequest, Path]:  # fmt: skip
    number, folder = attempt or disk.new_attempt(context.folder, ProbeRequest)
    history = context.history
    by_speed = purpose == "search" and context.objective.is_speed
    probe_budget = probe_budget or (
        context.budget.next_probe_budget(config) if purpose == "search" else context.objective.probe_budget
    )
    probe_budget = with_stall_limit(probe_budget, config, history, context.budget.seconds, context.budget.left_seconds)
    incumbent = history.incumbent(config, number) if by_speed else None
    asked = probe_request(
        context.request,
        config,
        number,
        purpose,
        probe_budget,
        repeats=repeats,
        short_cycles=by_speed,
        incumbent=incumbent,
    )
    if purpose != "baseline" or history.baseline_probes:  # whether it runs at all is not to be decided in haste
        within = context.budget.spare_seconds if purpose == "search" else context.budget.left_seconds
        asked = replace(asked, repeat_within_seconds=within)
    return asked, folder


def probe_request(
    request: StudyRequest, config: Config, number: int, purpose: Purpose, budget: ProbeBudget, *,
    repeats: int | None = None, short_cycles: bool = False, incumbent: float | None = None,
) -> ProbeRequest:  # fmt: skip
    """Return the request for a probe of `config`. It is cut short if it does not reach `incumbent`, in samples/s.

    If it compiles, each later micro-batch may take as long as the first one: batches of another shape compile anew.
    """
    if compiles(config):
        budget = replace(budget, step_deadline_seconds=budget.first_step_deadline_seconds)
    return ProbeRequest(
        **of_study(request),
        config=config,
        device_uuid=request.environment.device_uuid,
        number=number,
        purpose=purpose,
        repeats=repeats,
        budget=budget,
        seed=request.seed,
        short_cycles=short_cycles,
        incumbent_samples_per_second=incumbent,
    )


def _probe(context: SearchContext, asked: tuple[ProbeRequest, Path]) -> Judged:
    request, folder = asked
    context.reporter.probing(request.number, request.config, request.purpose)
    result = context.run(request, folder)
    trial = Trial(
        number=request.number, purpose=request.purpose, config=request.config, result=result, repeats=request.repeats,
        seed=request.seed,
    )  # fmt: skip
    best = context.history.best_score
    judged = context.history.add(trial)
    was_refused, refused = context.guard.stability.refuses(trial.config), context.guard.failing.refused_alone
    learn(context.guard, judged)
    if doubtful := doubts(trial):
        context.reporter.detail(f"Probe {trial.number}: {doubtful}")
    verdict = judged.verdict
    improved = verdict.feasible and verdict.value is not None and verdict.value > best
    context.reporter.probed(trial, verdict, improved and trial.purpose in ("baseline", "search"))
    if context.guard.stability.refuses(trial.config) and not was_refused:
        own = own_arithmetic(context.request.facts)
        name, _ = names_of(precision_of(trial.config), own, lambda knob, value: knob.show(value))
        if name:  # without one, nothing is left to try, and the search says so
            context.reporter.note(f"No more probes with {name}: it was unstable more than once.")
    for name, value in context.guard.failing.refused_alone - refused:
        context.reporter.note(f"No more probes with {typed({name: value})}: your code fails with it.")
    return judged


def learn(guard: Guard, judged: Judged) -> None:
    """Teach the guard a probe, unless its purpose is to show a machine and not a configuration."""
    trial, verdict = judged
    if trial.purpose not in ("reference", "elsewhere"):
        guard.learn(trial, over_limit=verdict.constraints["memory"] > 0, is_stable=_is_stable(judged))


def _is_stable(judged: Judged) -> bool | None:
    """Return whether losses and gradients were finite; None: unknown, or they grew, as a batch may cause."""
    trial, verdict = judged
    has_trained = trial.result.measurement is not None or trial.result.outcome is Outcome.UNSTABLE
    has_grown = verdict.reason is not None and verdict.reason.code is Code.UNSTABLE_LOSS_GREW
    return verdict.constraints["stability"] <= 0 if has_trained and not has_grown else None
