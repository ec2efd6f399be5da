"""The short profile that a search makes once of its baseline, to find costs that no setting mends.

baseline measured ─► parts, calls and lines of the baseline in a process of its own ─► two lines below the answer
"""

from __future__ import annotations

from msgspec.structs import replace

from autotune.context.search_context import SearchContext
from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.requests import ProbeBudget, of_study
from autotune.core.results import ProbeResult
from autotune.errors import EnvironmentUnfit, StudyError
from autotune.knobs import KNOBS
from autotune.profile.advice import numbers_of
from autotune.profile.judge import expensive_lines, step_bottleneck
from autotune.profile.records import NO_LINE, ProfileRequest, ProfileResult, SlowLine
from autotune.study.pace import Pace, starting_seconds
from autotune.study.recommendation import Recommendation
from autotune.units import format_seconds, format_share

PASS_SECONDS = 0.3  # of each pass, unless its fewest steps take longer
# Warm-up, parts, calls, lines; of all of them together: 17, of which 9 take longer.
PASS_COUNT, FEWEST_PROFILE_STEPS = 4, 21
PROFILE_PATIENCE, LEAST_PATIENCE_SECONDS = 3, 10.0  # times the expected seconds, after which the process is ended
LEAST_LINE_SHARE = 0.05  # of a step: only lines that cost more than most settings gain are shown below an answer
MOST_SLOW_LINES = 2


def profile_baseline(context: SearchContext) -> None:
    """Profile the baseline, unless the study has a profile, and report it; or report why it is impossible.

    If the profile fails, the search goes on without it.
    """
    is_known = bool(context.history.profiles) and not context.code_changed
    if context.settings.profile == "off" or is_known or context.interrupted_confirmation:
        return
    known = context.history.baseline_known
    why = _unfit(context, known[0].result if known else None)
    if not why:
        assert known is not None, "else it is unfit"
        why = _profiled(context, known[0].result)
    if why:
        context.reporter.detail(f"Slow lines of your code are not looked for: {why}.")


def with_slow_lines(answer: Recommendation, context: SearchContext) -> Recommendation:
    """Return the answer with the user's most expensive lines, which no setting mends."""
    result = context.history.profile
    if context.settings.profile == "off" or result is None:
        return answer
    warnings = tuple(_with_line(one, result) for one in answer.warnings)
    return replace(answer, slow_lines=slow_lines(result, answer.data_wait_share), warnings=warnings)


def _with_line(warning: Notice, result: ProfileResult) -> Notice:
    """Return the warning that memory grows with the line whose tensors were seen to stay; others as they are.

    Probes show the growth, because a profile of the baseline has too few steps for it.
    """
    line = next((one for one in result.slow_lines if one.kind == "growth"), None)
    if line is None or warning.code is not Code.MEMORY_GROWS:
        return warning
    return notice(Code.MEMORY_GROWS_LINE, **warning.numbers, place=_place(line), holder=line.what or None)


def slow_lines(result: ProfileResult, wait_share: float) -> tuple[Notice, ...]:
    """Return the two most expensive slow lines that take a twentieth of a step or more.

    `wait_share` is that of a recommended step. Loading does not matter if it does not wait for it.
    """
    least = LEAST_LINE_SHARE * result.seconds
    told = [
        one
        for one in expensive_lines(result)
        if one.seconds >= least and not (one.kind in ("tail", "one by one") and wait_share < LEAST_LINE_SHARE)
    ]
    most_expensive = sorted(told, key=lambda one: one.seconds, reverse=True)[:MOST_SLOW_LINES]
    return tuple(_notice(one, result.seconds) for one in most_expensive)


def _unfit(context: SearchContext, baseline: ProbeResult | None) -> str:
    """Return why the baseline cannot be profiled, or not in time; empty if it can."""
    facts = context.request.facts
    if facts.owns_loop:
        return "the target trains in a loop of its own"
    if any(one.compiles and context.request.baseline[one.name] != one.default for one in KNOBS):
        return "the baseline is compiled"
    if baseline is None or baseline.measurement is None:
        return "the baseline does not run"
    if (needed := _expected_seconds(baseline)) > context.budget.profile_seconds:
        return f"that takes about {format_seconds(needed)}, for which the time budget is too short"
    return ""


def _expected_seconds(baseline: ProbeResult) -> float:
    """Return the expected seconds of a profile: the start of the baseline's probe, and the passes."""
    return starting_seconds(baseline) + max(PASS_COUNT * PASS_SECONDS, FEWEST_PROFILE_STEPS * Pace.of(baseline).step)


def _profiled(context: SearchContext, baseline: ProbeResult) -> str:
    """Profile the baseline and report it; return why that failed; empty if it succeeded."""
    request, deadline = context.request, max(LEAST_PATIENCE_SECONDS, PROFILE_PATIENCE * _expected_seconds(baseline))
    asked = ProfileRequest(
        **of_study(request), config=request.baseline, seed=request.seed, seconds=PASS_SECONDS, extent="brief",
        budget=ProbeBudget(total_deadline_seconds=deadline),
    )  # fmt: skip
    try:
        found = context.run_dispensable(asked)
    except (EnvironmentUnfit, StudyError) as error:
        return str(error).rstrip(".")
    context.history.add_measured(asked, found)
    if found.failure is not None:
        return f"{found.outcome}: {found.why}"
    if found.parts:
        context.reporter.detail(f"Profile of the baseline: {_described(found)}")
    return ""


def _described(found: ProfileResult) -> str:
    lines = expensive_lines(found)
    if not lines:
        return step_bottleneck(found)
    first = max(lines, key=lambda one: one.seconds)
    return (
        f"{step_bottleneck(found)} Most expensive line: {_place(first)}, {format_share(first.seconds / found.seconds)}."
    )


def _notice(one: SlowLine, step_seconds: float) -> Notice:
    return notice(
        Code.SLOW_LINE, place=_place(one), milliseconds=1000 * one.seconds, share=one.seconds / step_seconds,
        step_milliseconds=1000 * step_seconds, kind=one.kind, line=one.code, **numbers_of(one),
    )  # fmt: skip


def _place(one: SlowLine) -> str:
    return one.place or f"({NO_LINE})"
