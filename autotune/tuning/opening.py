"""The opening of a search: reports before the first probe, and what follows from it about the time budget."""

from __future__ import annotations

import math

from autotune.answer.choice import FEWEST_FINALISTS
from autotune.context.budget import TimeBudget
from autotune.context.reporter import Reporter
from autotune.context.search_context import SearchContext
from autotune.core.codes import Code
from autotune.precision.duration import CHECK_STEPS, probable_check_seconds
from autotune.preparation.header import notes_before_the_search, opening_lines
from autotune.preparation.open_study import OpenStudy
from autotune.preparation.settings import Settings
from autotune.preparation.short_budget import budget_note
from autotune.sentences import capitalized
from autotune.study.answers import unreadable_answer
from autotune.study.history import History
from autotune.study.shown import moving
from autotune.units import counted, format_seconds


def tell_opening(
    study: OpenStudy, history: History, settings: Settings, reporter: Reporter, gone_seconds: float
) -> bool:
    """Tell the reporter what is searched, and whether the time budget is short; return the latter."""
    request, is_resumed, short, before = study.request, study.is_resumed, "", list[str]()
    lines = opening_lines(
        study.folder, request, study.space, settings, resumed=is_resumed, brief=True,
        seeds=[trial.seed for trial, _ in history.judged],
    )  # fmt: skip
    reporter.opening(lines, moving(request))
    if request.facts.owns_loop:
        reporter.detail(f"{capitalized(Code.LOOP_ONLY_OBSERVED.sentence)}.")
    if not is_resumed:
        short = budget_note(settings, request, study.space, study.inspection_seconds, gone_seconds)
        before = notes_before_the_search(request)
    changed = study.code_changed.text if study.code_changed else ""
    if damaged := unreadable_answer(study.folder):
        damaged += " The answer of this search replaces it; the file is kept as a best-N.json."
    for note in filter(None, (study.note, damaged, changed, *before, short)):
        reporter.note(note)
    return bool(short)


def note_short_budget(context: SearchContext) -> int:
    """Say what the budget is too short for, once it is known how long a probe takes.

    Return the minutes that are named as enough; 0 if the budget is long enough.
    """
    budget, remaining = context.budget, len(context.trades.remaining())
    probes = min(budget.missing_finalists, context.settings.probes or FEWEST_FINALISTS, remaining)
    over, minutes = shortage(budget, context.history, probes)
    if not over or not context.history.best_score:
        return 0
    more = f"{counted(probes, 'more probe')} and a short confirmation take"
    wanted = more if probes else "a short confirmation takes"
    least = budget.shortest_confirmation_seconds + (context.time_guard.shortest_probe_seconds() if probes else 0.0)
    fits = least <= budget.left_seconds
    less = "fewer probes are run" if fits else "there may be no time for a confirmation"
    context.reporter.note(
        f"The time budget is short: {wanted} about {format_seconds(over)} more than is left; {less}. "
        f"Use --time-budget {minutes}m or more."
    )
    return minutes


def shortage(budget: TimeBudget, history: History, probes: int) -> tuple[float, int]:
    """Return the seconds that are missing for so many probes and a short confirmation, and the minutes needed.

    The minutes are those of a time budget that would be enough. Both are 0 if the budget is long enough.
    """
    over = probes * history.times.typical_seconds + budget.short_confirmation_seconds - budget.left_seconds
    minutes = math.ceil((budget.seconds + over + probable_check_seconds(history, CHECK_STEPS)) / 60)
    return (over, minutes) if over > 0 else (0.0, 0)
