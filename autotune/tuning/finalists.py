"""The finalists: the configurations that are confirmed, and those to compare with them in the same rounds.

    finalists ─► with neighbours of the knee ─► with the batch held ─► with the arithmetic held
              ─► with the leading variable ─► with fewer changes

The losses of finalists are compared first (`check_precision`): a refused arithmetic gives its places to others. A
finalist that changes what the model learns, or whose losses are undecided, has to gain enough over itself without that
change, and so has one that sets an environment variable; single probes do not prove this. If there is no time for an
ablation, other changes are taken back here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from autotune.answer.choice import FEWEST_FINALISTS, finalists, luck
from autotune.answer.confirmation_rounds import FEWEST_ROUNDS, MOST_FINALISTS, finalist_margin, probe_count
from autotune.answer.doubtful_batch import EVIDENT_SLOWDOWN, is_batch_doubtful
from autotune.answer.recommend import LEAST_UNMATCHED_GAIN
from autotune.context.budget import KNEE_FINALISTS
from autotune.context.search_context import SearchContext
from autotune.core.records import Config
from autotune.core.stats import HALF_WIDTH_DEVIATIONS, MOST_PROBE_NOISE
from autotune.knobs.changes import BATCH_KNOBS
from autotune.precision.arithmetic import precision_of
from autotune.precision.stage import compare_losses, trusted_probes
from autotune.study.shown import shown_config
from autotune.study.summary import ConfigSummary
from autotune.tuning.probed_scores import search_scores
from autotune.tuning.reversions import (
    Reversion,
    expected_slowdowns,
    knobs_of,
    obstacle,
    reversions_of,
    seen_slowdown,
    without,
    without_variables,
)
from autotune.tuning.simplification import preferred, with_leading_variable, without_idle_updates


def check_precision(context: SearchContext) -> None:
    """Compare the losses of the finalists with the arithmetic of the user's code, as far as there is time.

    Those of a resumed confirmation were compared before it began. Raises `NoRecommendation` if every configuration that
    could be confirmed is refused, and `EnvironmentUnfit`.
    """
    if context.budget.finalists(MOST_FINALISTS) and not _resumed(context):
        compare_losses(context, partial(_finalists, context))


def settled_finalists(context: SearchContext) -> list[ConfigSummary]:
    """Return the finalists, best first, without the baseline; for a resumed confirmation, those it began with."""
    chosen = _finalists(context)
    steps = (_with_neighbours, _with_batch_held, _with_arithmetic_held, _with_variable, _with_fewer_changes)
    for also in steps:
        if chosen and not context.interrupted_confirmation.finalists:
            chosen = also(context, chosen)
    return chosen


def _finalists(context: SearchContext) -> list[ConfigSummary]:
    """Return as many finalists as there is time for, without the baseline; those of a resumed confirmation.

    If there are few, one more takes the baseline's place, and the one with fewer changes is first, of those that single
    probes cannot distinguish. None has an update that saves next to nothing of its step.
    """
    history, request, most = context.history, context.request, context.budget.finalists(MOST_FINALISTS)
    if resumed := _resumed(context):
        return [ConfigSummary(config=one, found=history.summary(one).found) for one in resumed]
    if not most:
        return []
    few, margin = most < FEWEST_FINALISTS or _seeks_knee(context, most), finalist_margin(history.baseline_rates)
    chosen = finalists(trusted_probes(history), request, most=most + few, margin=margin)
    first = preferred(context) if few and context.objective.is_speed else None
    if first is not None:
        chosen = [first, *(one for one in chosen if one.config != first.config)]
    chosen = [one for one in chosen if one.config != request.baseline]
    distinct = dict[Config, ConfigSummary]()
    for one in chosen:
        reduced = without_idle_updates(context, one.config)
        found = one.found if reduced == one.config else history.summary(reduced).found
        distinct.setdefault(reduced, ConfigSummary(config=reduced, found=found))
    distinct.pop(request.baseline, None)
    return ([*distinct.values()] or chosen)[:most]


def _resumed(context: SearchContext) -> list[Config]:
    """Return the finalists of the confirmation that is resumed; empty if one of them is refused by now."""
    resumed = context.interrupted_confirmation.finalists
    return [] if any(map(context.history.refusal, resumed)) else resumed


def _with_neighbours(context: SearchContext, chosen: list[ConfigSummary]) -> list[ConfigSummary]:
    """Return the finalists with twice and half the global batch of the first one, if the global batch is free.

    They stay as they are if there are many of them, or if there is no time for two rounds. Single probes and their
    curve sometimes miss the knee by a factor of two, and the curve expects too much of batches beyond a limit of the
    loader or a cache: rounds decide. If the fastest single probe had a smaller batch than all these, it replaces the
    larger neighbour. Otherwise a quarter of the batch replaces it if half was faster in single probes: with the fastest
    arithmetic refused, the first one may be the only probe in another.
    """
    request, budget, scores = context.request, context.budget, search_scores(context.history)
    if not _seeks_knee(context, len(chosen)):
        return chosen
    first, beside = chosen[0].config, list[ConfigSummary]()
    larger, half, quarter = (
        context.space.canonical(Config(values={**first.values, "batch_size": batch}))
        for batch in (2 * first.batch_size, first.batch_size // 2, first.batch_size // 4)
    )
    fastest = max(scores, key=scores.__getitem__)
    other = quarter if _best_at(half, scores) > _best_at(first, scores) else larger
    for config in (fastest if fastest.global_batch_size() < half.global_batch_size() else other, half):
        is_small = config.global_batch_size() < request.baseline.global_batch_size()
        if config != request.baseline and not is_small and not obstacle(context, config):
            beside.append(ConfigSummary(config=config, found=context.history.summary(config).found))
    finalist_total = max(len(chosen), 1 + len(beside))
    seconds = budget.probe_seconds(
        [first, *(one.config for one in beside), request.baseline], budget.round_probe_budget
    )
    if budget.left_seconds < probe_count(finalist_total, FEWEST_ROUNDS, 1) * seconds:
        return chosen
    others = [one for one in chosen[1:] if one.config not in [each.config for each in beside]]
    candidates = [chosen[0], *beside, *others][:finalist_total]
    expected = dict(context.expected([one.config for one in candidates]))
    rates = {config: one.samples_per_second for config, one in expected.items()}
    return [replace(one, expected=rates.get(one.config)) for one in candidates]


def _best_at(like: Config, scores: Mapping[Config, float]) -> float:
    """Return the highest score with its global batch; 0 if nothing ran with it."""
    size = like.global_batch_size()
    return max((score for config, score in scores.items() if config.global_batch_size() == size), default=0.0)


def _with_batch_held(context: SearchContext, chosen: list[ConfigSummary]) -> list[ConfigSummary]:
    """Return the finalists with the first one at the baseline's batch, if its batch changes what the model learns.

    If there is no time for both, the one with the baseline's batch replaces it, unless another global batch evidently
    gains: another batch has to gain enough to justify its warning (decisions/0057, 0066).
    """
    request, first = context.request, chosen[0].config
    if not is_batch_doubtful(first, request):
        return chosen
    held = Reversion(knobs=BATCH_KNOBS, config=without(context, first, BATCH_KNOBS))
    slowdown = _seen_slowdown(context, held, first) if request.goal.global_batch is None else None
    found = _with_held(context, chosen, held.config, instead=slowdown is None or slowdown <= EVIDENT_SLOWDOWN)
    if found[0].config != first:
        context.reporter.note(
            f"{shown_config(first.values)} is not confirmed: with its batch the model may learn something else, and "
            f"there is no time to compare it with {shown_config(held.config.values)}. Use a longer --time-budget."
        )
    return found


def _with_arithmetic_held(context: SearchContext, chosen: list[ConfigSummary]) -> list[ConfigSummary]:
    """Return the finalists with the first one in the baseline's arithmetic, if the losses of its own are undecided.

    If there is no time for both and the gain in single probes was too small, the one in the baseline's arithmetic
    replaces it. Arithmetic with undecided losses has to be 5 % faster than the other (decisions/0048), and that needs
    both in the same rounds.
    """
    first, names = chosen[0].config, _undecided_arithmetic(context, chosen[0].config)
    if not names:
        return chosen
    held = Reversion(knobs=names, config=without(context, first, names))
    slowdown = _seen_slowdown(context, held, first)
    return _with_held(
        context, chosen, held.config, instead=slowdown is not None and slowdown <= LEAST_UNMATCHED_GAIN - 1
    )


def _with_variable(context: SearchContext, chosen: list[ConfigSummary]) -> list[ConfigSummary]:
    """Return the finalists and the first one with the environment variable that leads, if there is time for both.

    The first of few finalists sets none. Rounds decide: the variable stays only if the other is surely slower
    (`proven`).
    """
    config = with_leading_variable(context, chosen[0]) if context.objective.is_speed else chosen[0].config
    if (
        config in [one.config for one in chosen]
        or obstacle(context, config)
        or not _has_time_for(context, len(chosen) + 1)
    ):
        return chosen
    return [*chosen, ConfigSummary(config=config, found=context.history.summary(config).found)]


def _with_fewer_changes(context: SearchContext, chosen: list[ConfigSummary]) -> list[ConfigSummary]:
    """Return the finalists and the first one without its doubtful changes, if the ablation has no time for them.

    If the batch or the arithmetic of the first one is in doubt, the probable answer is the finalist that holds it, and
    the changes of that finalist are taken back instead. The last finalist is replaced, unless it is one of these or
    sets a variable that needs proof. A global batch that is free does not count as such a change. If this would lead to
    the baseline, the change with the largest expected gain stays.
    """
    request, configs = context.request, [one.config for one in chosen]
    if context.budget.affords_ablation or not context.objective.is_speed:
        return chosen
    full, first = configs[0], configs[0]
    doubted = BATCH_KNOBS if is_batch_doubtful(first, request) else ()
    for names in (doubted, _undecided_arithmetic(context, first)):
        held = without(context, full, names)
        full = held if held in configs else full
    is_held = request.goal.global_batch is not None
    may = [one for one in reversions_of(context, full) if is_held or "batch_size" not in one.knobs]
    may = [one for one in may if not one.untested]  # running out of memory without a change does not make it doubtful
    slowdowns = expected_slowdowns(context, full, may)
    may.sort(key=lambda one: slowdowns[one.config])
    doubtful = [one for one in may if _is_doubtful(context, one, full, slowdowns[one.config])]
    if without(context, full, knobs_of(doubtful)) == request.baseline:
        doubtful.pop()
    reduced = without(context, full, knobs_of(doubtful))
    kept = 1 + max(i for i, one in enumerate(configs) if one == full or one != without_variables(context, one))
    if reduced in configs or obstacle(context, reduced) or not _has_time_for(context, kept + 1):
        return chosen
    beside = ConfigSummary(config=reduced, found=context.history.summary(reduced).found)
    return [*chosen[:kept], beside, *chosen[kept:]][: max(len(chosen), kept + 1)]


def _is_doubtful(context: SearchContext, one: Reversion, first: Config, slowdown: float) -> bool:
    """Return whether no probe was without this change, or its expected gain is within the noise of probes."""
    summary = context.history.summary
    windows = luck(summary(first).trials, summary(one.config).trials, HALF_WIDTH_DEVIATIONS)
    return _seen_slowdown(context, one, first) is None or slowdown <= max(MOST_PROBE_NOISE, windows)


def _undecided_arithmetic(context: SearchContext, config: Config) -> tuple[str, ...]:
    """Return the knobs of its arithmetic if its losses were compared and are undecided; else none."""
    own, values = precision_of(context.request.baseline), precision_of(config)
    found = any(one.values == values and one.verdict == "inconclusive" for one in context.history.loss_verdicts)
    return tuple(name for name in own if found and own[name] != values[name])


def _with_held(
    context: SearchContext, chosen: list[ConfigSummary], held: Config, *, instead: bool
) -> list[ConfigSummary]:
    """Return the finalists with `held` after the first one; without time for both, it replaces that one if `instead`.

    The last of three or more is replaced; the last of two only if time is short.
    """
    if held in (context.request.baseline, *(one.config for one in chosen)) or obstacle(context, held):
        return chosen
    beside = ConfigSummary(config=held, found=context.history.summary(held).found)
    has_time = _has_time_for(context, len(chosen) + 1)
    if len(chosen) == 1 and not has_time:
        return [beside] if instead else chosen
    return [chosen[0], beside, *chosen[1 : None if has_time and len(chosen) < FEWEST_FINALISTS else -1]]


def _has_time_for(context: SearchContext, finalist_total: int) -> bool:
    """Return whether there is time for two rounds of so many finalists and the baseline, with the shortest windows."""
    longer = probe_count(finalist_total, FEWEST_ROUNDS, 1) / probe_count(1, FEWEST_ROUNDS, 1)
    return context.budget.left_seconds >= longer * context.budget.shortest_confirmation_seconds


def _seen_slowdown(context: SearchContext, taken_back: Reversion, first: Config) -> float | None:
    return seen_slowdown(taken_back, first, search_scores(context.history), context.request.baseline)


def _seeks_knee(context: SearchContext, most: int) -> bool:
    """Return whether a confirmation of so many is about the knee: the global batch is free, and time is short.

    Without a clear gain by now it is about the gain instead, which needs all rounds.
    """
    is_free = context.objective.knee(context.request.goal) is not None and context.objective.is_speed
    return is_free and most <= KNEE_FINALISTS and context.budget.has_clear_gain
