"""The search: its stages in their order, from the first look at the target to the recommendation."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace

from autotune import interrupts
from autotune.context.progress_writer import ProgressWriter
from autotune.context.reporter import Reporter
from autotune.context.search_context import SearchContext
from autotune.gradient_noise.stage import measure_gradient_noise
from autotune.launch.base import Launcher
from autotune.machine.interference import ForeignCores, foreign_cores
from autotune.memory.stage import predict_memory
from autotune.preparation.open_study import open_study
from autotune.preparation.settings import Settings
from autotune.profile.stage import profile_baseline
from autotune.study import disk
from autotune.study.history import History
from autotune.study.recommendation import Recommendation
from autotune.study.view import view_of
from autotune.tuning.ablation import ablate
from autotune.tuning.answering import keep, recommendation_of
from autotune.tuning.baseline import measure_baseline, probe_nearest
from autotune.tuning.confirmation import confirm
from autotune.tuning.exploration import bound_the_rest, explore
from autotune.tuning.finalists import check_precision
from autotune.tuning.opened_context import Outside, opened_context
from autotune.tuning.opening import note_short_budget, tell_opening
from autotune.tuning.quiet import wait_for_quiet
from autotune.tuning.refinement import refine_batch, refine_global_batch, refine_memory
from autotune.tuning.reversions import proven
from autotune.tuning.second_machine import confirm_elsewhere
from autotune.tuning.simplification import simplify


def search(
    settings: Settings, launcher: Launcher, reporter: Reporter, clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep, foreign_cores: ForeignCores = foreign_cores,
    began: float | None = None,
) -> Recommendation:  # fmt: skip
    """Run one search; return its recommendation, which is also stored in the study as best.json.

    The time budget counts from `began`, in seconds of `clock`; from now if it is None.

    Raises `UsageError`, `TargetError`, `StudyError`, `EnvironmentUnfit` or `NoRecommendation`. On `KeyboardInterrupt`
    the running probe is killed, everything finished is kept, the reporter is told, and the interrupt is raised again;
    once the answer is stored, an interrupt ends only the ablation.
    """
    began = clock() if began is None else began
    outside = Outside(clock=clock, began=began, pause=pause, foreign_cores=foreign_cores)
    # In a context of its own: knobs that the target declares are those of this search alone.
    return copy_context().run(_search, settings, launcher, reporter, outside)


def _search(settings: Settings, launcher: Launcher, reporter: Reporter, outside: Outside) -> Recommendation:
    try:
        with open_study(settings, launcher) as study:
            reporter = ProgressWriter(reporter, study.folder, settings.time_budget_seconds)
            history = History.read(study.folder, study.request)
            is_short = tell_opening(study, history, settings, reporter, outside.clock() - outside.began)
            try:
                with opened_context(study, history, settings, launcher, reporter, outside) as context:
                    return run(context, notes_budget=not is_short)
            except KeyboardInterrupt:
                reporter.interrupted(view_of(study.folder, history), settings.resume_command)
                raise
    except KeyboardInterrupt:
        if not disk.is_study(settings.folder):
            reporter.note("Interrupted before the first probe: nothing was measured.")
        raise


def run(context: SearchContext, *, notes_budget: bool = True) -> Recommendation:
    """Carry out the stages of one search, in this order, and return the answer that counts.

    `notes_budget`: say after the baseline if the time budget is short.
    """
    measure_gradient_noise(context)
    measure_baseline(context)
    probe_nearest(context)
    profile_baseline(context)
    if context.interrupted_confirmation:
        predict_memory(context)
        context.reporter.note(
            "Resuming an interrupted confirmation; completed rounds are reused. To search further, run this command "
            "again when it has finished."
        )
    else:
        context.reporter.phase("search")
        if notes_budget:
            context = replace(context, advised_minutes=note_short_budget(context))
        predict_memory(context)
        explore(context)
        refine_batch(context)
        refine_global_batch(context)
        refine_memory(context)
        simplify(context)
    interrupts.check()
    certificate = bound_the_rest(context)
    context.reporter.phase("confirm")
    wait_for_quiet(context)
    check_precision(context)
    summaries = confirm(context)
    interrupts.check()
    answer = recommendation_of(context, certificate, summaries, proven(context, summaries))
    kept = keep(context, answer)
    if kept is answer:
        kept = ablate(context, summaries, kept, certificate)
        kept = confirm_elsewhere(context, kept)
    context.reporter.finished(kept)
    return kept
