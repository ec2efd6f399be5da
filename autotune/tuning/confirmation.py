"""The confirmation at the end of a search: the finalists and the baseline are measured again, in interleaved rounds."""

from __future__ import annotations

from dataclasses import replace

from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.records import Config
from autotune.core.results import Trial
from autotune.errors import NoRecommendation
from autotune.precision.stage import precise_finalists, refused_summaries
from autotune.study.interference import Judged
from autotune.study.summary import ConfigSummary
from autotune.tuning import racing
from autotune.tuning.context import SearchContext
from autotune.tuning.header import shown
from autotune.tuning.probing import probe_with_repeat, probe_with_retry
from autotune.tuning.recommend import nothing_usable
from autotune.units import counted, format_seconds

MOST_RACES = 3  # while nothing holds at all: then memory or the machine is at its edge, and more would not help


def confirm(context: SearchContext) -> list[ConfigSummary]:
    """Race the finalists; return all that were raced, the baseline if it runs, and one of each refused precision.

    If all finalists fail, the next ones of the search are raced, as far as time allows; while nothing has held, over
    the budget too. Raises `NoRecommendation` if no probe was usable.
    """
    raced: list[ConfigSummary] = []
    baseline: list[ConfigSummary] = []
    for number in range(MOST_RACES):
        chosen = [one for one in _finalists(context) if one.config != context.request.baseline]
        baseline = baseline or _baseline(context)  # after the finalists: whether it is refused is known then
        if not chosen and (number or not baseline):
            break
        if not chosen and not _has_time_for_baseline(context):
            baseline = [_as_probed(context, baseline[0])]
            break
        if number:
            reasons = "; ".join(f"{shown(one.config)}: {one.failure}" for one in raced if one.failure)
            context.reporter.note(f"All finalists failed when re-measured ({reasons}). Trying the next ones.")
        finished = _race(context, [*chosen, *(one for one in baseline if not one.failure)])
        baseline = [next((one for one in finished if one.config == old.config), old) for old in baseline]
        latest = [one for one in finished if one.config != context.request.baseline]
        raced += latest
        holding = [one for one in (*latest, *baseline) if not one.failure]
        if any(one in holding for one in latest) or (holding and context.budget.spare_seconds < 0):
            break
    if not raced and not baseline:
        raise NoRecommendation(nothing_usable(context.folder, context.history.judged))
    return [*raced, *baseline, *refused_summaries(context.history)]


def _finalists(context: SearchContext) -> list[ConfigSummary]:
    """Return as many finalists as there is time for, after comparing their losses; those of a race that is resumed."""
    history, budget, resumed = context.history, context.budget, context.interrupted_confirmation.finalists
    if resumed and not any(map(history.refusal, resumed)):
        return [ConfigSummary(config=one, found=history.summary(one).found) for one in resumed]
    margin = racing.margin([rate for _, rate in history.references])
    chosen = precise_finalists(context, budget.schedule(racing.MOST_FINALISTS).finalists, margin)
    affordable = budget.schedule(len(chosen)).finalists
    return chosen if len(chosen) <= affordable else precise_finalists(context, affordable, margin)


def _baseline(context: SearchContext) -> list[ConfigSummary]:
    """Return the baseline, if it runs; what the space excludes is measured for comparison only."""
    config = context.request.baseline
    if not context.history.baseline_runs:
        return []
    excluded = context.space.excludes(config)
    refused = notice(Code.MEASURED_FOR_COMPARISON, why=excluded) if excluded else None
    return [ConfigSummary(config=config, refused=refused or context.history.refusal(config))]


def _has_time_for_baseline(context: SearchContext) -> bool:
    """Whether the baseline can be measured again when there is nobody to race it."""
    budget = context.budget
    seconds = budget.probe_seconds([context.request.baseline], budget.brief_window)
    return budget.left_seconds >= racing.fewest_rounds(1) * seconds


def _as_probed(context: SearchContext, baseline: ConfigSummary) -> ConfigSummary:
    """Return the baseline with its latest probe as its only round: there is no time for another."""
    trial, verdict = [p for p in context.history.judged if p[0].config == baseline.config and p[1].feasible][-1]
    context.reporter.note("Only the baseline ran, and there is no time to confirm it: its latest probe is used.")
    return replace(baseline, trials=(trial,), verdicts=(verdict,))


def _race(context: SearchContext, racers: list[ConfigSummary]) -> list[ConfigSummary]:
    """Report the schedule of one race in a line, and carry it out."""
    budget, known = context.budget, len(context.interrupted_confirmation)
    configs, window = [one.config for one in racers], budget.window
    leading = sum(config != context.request.baseline for config in configs)
    others = len(configs) - leading
    least = racing.probes(leading, racing.fewest_rounds(len(configs)), others) - known
    if least * budget.probe_seconds(configs, window) > budget.race_seconds:
        window = budget.brief_window
    probe_seconds = budget.probe_seconds(configs, window)
    rounds = racing.schedule(leading, others, known + budget.race_seconds / probe_seconds).rounds
    seconds = max(0, racing.probes(leading, rounds, others) - known) * probe_seconds
    briefly = ", measured briefly" if window != budget.window else ""
    over = seconds - budget.left_seconds
    late = f" This takes about {format_seconds(over)} more than the time budget." if over > 0 else ""
    context.reporter.note(f"{_announced(leading, others, rounds)}{briefly}, {format_seconds(seconds)} at most.{late}")
    # Beyond the time budget as many repeats as one round has at most.
    most_repeats = len(configs) + int(max(0.0, budget.left_seconds / probe_seconds - max(0, least)))
    repeats = iter(range(most_repeats))
    first = len(context.history.judged)

    def probe(config: Config) -> Judged:
        return probe_with_repeat(
            context, config, "confirm", window=window, has_time=lambda: next(repeats, None) is not None
        )

    def again(trial: Trial) -> Judged | None:
        slow = f"Probe {trial.number} was far slower than the other rounds of its configuration, and nothing tells why."
        if next(repeats, None) is None:
            context.reporter.detail(f"{slow} There is no time for another try.")
            return None
        context.reporter.detail(f"{slow} Trying once more.")
        return probe_with_retry(context, trial.config, "confirm", window=window, repeats=trial.number)

    finished = racing.race(
        racers, rounds, probe, context.request, resumed=context.interrupted_confirmation, again=again,
        affords=lambda running: budget.affords_round(running, window, budget.elimination_seconds),
    )  # fmt: skip
    has_repeated = any(trial.repeats is not None for trial, _ in context.history.judged[first:])
    if -budget.left_seconds > max(over, 0.0) and has_repeated:
        context.reporter.note(
            f"Because of repeats the confirmation ended {format_seconds(-budget.left_seconds)} after the time budget."
        )
    return finished


def _announced(leading: int, others: int, rounds: int) -> str:
    """`Confirming 9 configurations in up to 12 interleaved rounds of separate processes, the slower half ...`."""
    most = "up to " if rounds > racing.SURE_ROUNDS else ""
    halved = [
        str(after)
        for after in racing.HALVED_AFTER
        if after < rounds and racing.size(leading, after) < racing.size(leading, after - 1)
    ]
    left = f", the slower half dropped after {' and '.join(halved)}" if halved else ""
    count = counted(leading + others, "configuration")
    return f"Confirming {count} in {most}{rounds} interleaved rounds of separate processes{left}"
