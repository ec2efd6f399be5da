"""The answer of a search: how it follows from the rounds, and which answer the study keeps."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from autotune.answer.compile_advice import with_compile_advice
from autotune.answer.recommend import StudyFacts, recommend
from autotune.answer.refused_precision import with_refused_precisions
from autotune.context.search_context import SearchContext
from autotune.core.notices import Notice
from autotune.core.records import Config
from autotune.gradient_noise.stage import with_batch_advice
from autotune.knobs.parsing import typed
from autotune.profile.stage import with_slow_lines
from autotune.study.answers import keep_answer
from autotune.study.recommendation import Recommendation
from autotune.study.summary import ConfigSummary
from autotune.tuning.exploration import recounted
from autotune.tuning.failed_configurations import FailedConfigurations


def recommendation_of(
    context: SearchContext, certificate: Notice, summaries: list[ConfigSummary], among: Collection[Config] = ()
) -> Recommendation:
    """Return the recommendation that follows from the confirmation; only one of `among`, if any are given."""
    history = context.history
    certificate = recounted(certificate, history)
    facts = StudyFacts(
        study=str(context.folder), probes=len(history.judged), seconds=context.budget.elapsed_seconds,
        losses=history.loss_verdicts, busy=history.is_busy, certificate=certificate, probed=history.probed,
        noise_scale=history.noise_scale,
    )  # fmt: skip
    answer = recommend(summaries, context.request, facts, among)
    open_one, advised = answer.undecided, context.advised_minutes
    if open_one is not None and open_one.minutes_needed is not None and open_one.minutes_needed < advised:
        answer = replace(answer, undecided=replace(open_one, minutes_needed=advised))  # one advice instead of two
    if context.code_changed:
        answer = replace(answer, warnings=(context.code_changed, *answer.warnings))
    failing, baseline = context.guard.failing, history.request.baseline
    if warning := FailedConfigurations.of(history).warning(
        lambda failure: typed({name: baseline[name] for name in failing.cause(failure)})
    ):
        answer = replace(answer, warnings=(*answer.warnings, warning))
    answer = with_refused_precisions(answer, history, summaries)
    return with_slow_lines(with_compile_advice(with_batch_advice(answer, history), history), context)


def keep(context: SearchContext, answer: Recommendation) -> Recommendation:
    """Add a new answer to those of the study; return the one that counts."""
    latest = {trial.config: verdict for trial, verdict in context.history.judged}

    def fails(config: Config) -> bool:
        return bool(context.history.refusal(config)) or (config in latest and not latest[config].feasible)

    kept, text = keep_answer(context.folder, answer, fails)
    if text:
        context.reporter.note(text)
    return kept
