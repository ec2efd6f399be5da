"""The wait for a quiet machine before the confirmation: foreign work would be measured with it."""

from __future__ import annotations

from autotune.context.search_context import SearchContext
from autotune.core.interference_readings import MOST_FOREIGN_CORES
from autotune.machine.interference import OUTSIDE_LOOK_SECONDS
from autotune.study.valid_probes import interference_causes
from autotune.units import format_seconds

LATEST_PROBES = 3  # probes: without interference in any of them, the cores are not looked at and nothing is waited for


def wait_for_quiet(context: SearchContext) -> None:
    """Wait until other processes leave the machine alone, for a tenth of the time budget at most; say so.

    Wait only if one of the latest probes had interference. The cores that this process may use are looked at for a
    second at a time, as a probe does for its whole window. Not covered: a GPU that others use, memory bandwidth, and
    the machines of workers, which are not this one.
    """
    if context.fleet is not None:
        return
    budget = context.budget
    latest = [trial for trial, _ in context.history.judged if trial.result.measurement is not None][-LATEST_PROBES:]
    if not any(interference_causes(trial.result) for trial in latest):
        return
    began, most = budget.elapsed_seconds, budget.waiting_seconds
    looks = 0
    while (cores := context.foreign_cores(context.pause)) is not None and cores > MOST_FOREIGN_CORES:
        looks += 1
        if looks == 1 and most > 0:
            context.reporter.note(
                f"Other processes keep {cores:.1f} cores busy: waiting up to {format_seconds(most)} for a quiet "
                f"machine before the confirmation."
            )
        if max(looks * OUTSIDE_LOOK_SECONDS, budget.elapsed_seconds - began) >= most:
            context.reporter.note("Other processes are still busy: the rates that are measured now will be too low.")
            return
    if looks:
        context.reporter.note("The machine is quiet now.")
