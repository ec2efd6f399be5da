"""Simplifies the best configuration of the exploration: it removes the changes that probably gain nothing.

    best       batch 32×2, bf16, nhwc, 4 workers      of the exploration, by single probes
    probe 1    without nhwc and batch 32×2            all that are expected to gain nothing, then half of them, ...
          2    without bf16                           a change that no probe was without yet
    finalist   the one with the fewest changes of those that are nearly as fast

If there is time, the ablation takes changes back after the confirmation (`ablation.py`). A short search has none: this
module makes it end with few changes too (decisions/0045).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeVar

from autotune.answer.choice import LUCK_DEVIATIONS, luck, simplest
from autotune.answer.confirmation_rounds import FINALIST_DEVIATIONS, finalist_margin
from autotune.context.search_context import SearchContext
from autotune.context.step_shares import evident_knobs, page_faults, unproven_variables
from autotune.core.records import Config
from autotune.core.stats import MOST_PROBE_NOISE, typical_rate
from autotune.knobs import knob, loader_workers
from autotune.knobs.changes import changes_between, keeps_memory
from autotune.study.summary import ConfigSummary
from autotune.tuning.exploration import affords_probe
from autotune.tuning.idle_update import idle_updates
from autotune.tuning.probed_scores import search_scores
from autotune.tuning.probing import probe_and_tell
from autotune.tuning.reversions import expected_slowdowns, knobs_of, obstacle, reversions_of, without, without_variables

MOST_SIMPLER = 5  # probes of the best with fewer changes
MOST_DOUBTFUL = 0.3  # expected slowdown without a change, above which that is not probed
MOST_COMPUTING = 0.4  # share of a step: workers hide computing that takes less, even on cores that both use
# Share by which a probe with fewer changes may be slower and still be preferred (benchmarks/useless_changes.py).
SIMPLER_SLOWDOWN = 0.03

Item = TypeVar("Item")


def simplify(context: SearchContext) -> None:
    """Probe the best without the changes that probably gain nothing, within the budgets of the search.

    Only if speed is the objective, and if there is no time to take all changes back after the confirmation.
    """
    is_needed = context.objective.is_speed and not context.budget.affords_ablation
    for _ in range(MOST_SIMPLER if is_needed else 0):
        config = simpler(context)
        if config is None or not affords_probe(context, config) or _is_time_for_proof(context, config):
            return
        probe_and_tell(context, config)


def _is_time_for_proof(context: SearchContext, config: Config) -> bool:
    """Return whether a probe of `config` would take the time to prove an environment variable that leads."""
    first, budget = preferred(context), context.budget
    leads = first is not None and with_leading_variable(context, first) != first.config
    return leads and budget.spare_seconds - budget.proof_seconds < budget.least_seconds(config)


def simpler(context: SearchContext) -> Config | None:
    """Return the best with fewer changes that was not probed yet and is probably as good; None if there is none.

    First it is the fastest without its environment variables. Then it is the best without all changes that are expected
    to gain no more than the noise of a probe, then without half of them, and so on. Then it is the best without one
    change that no probe was without, least gain first: the model alone is not enough to keep such a change, nor to
    change what BatchNorm sees. A global batch that is free is none of these changes.
    """
    request, scores, found = context.request, search_scores(context.history), preferred(context)
    unset = without_variables(context, max(scores, key=scores.__getitem__, default=request.baseline))
    if unset not in context.history.probed and not obstacle(context, unset):
        return unset
    if found is None:
        return None
    best = found.config
    if best not in context.history.probed:
        return best  # without idle changes, or with memory kept, by the model or by page faults alone
    is_held = request.goal.global_batch is not None
    may = [one for one in reversions_of(context, best) if is_held or "batch_size" not in one.knobs]
    expected = expected_slowdowns(context, best, may)
    may = sorted((one for one in may if not one.untested), key=lambda one: expected[one.config])
    doubtful = [one for one in may if expected[one.config] <= MOST_PROBE_NOISE]
    unseen = [one for one in may if one not in doubtful and one.config not in scores]
    alone = [[one] for one in unseen if expected[one.config] <= MOST_DOUBTFUL]
    for taken in (*halved(doubtful), *alone):
        config = without(context, best, knobs_of(taken))
        if config != request.baseline and config not in context.history.probed and not obstacle(context, config):
            return config
    return None


def preferred(context: SearchContext) -> ConfigSummary | None:
    """Return the configuration to confirm first: few changes, and nearly as fast as the fastest.

    It may be one that was not probed (`scores_without_idle_changes`, `_as_page_faults_say`). It sets no environment
    variable, unless that is evident or its only change: it may be confirmed without rivals, and single probes never
    suffice for a variable (decisions/0054). Return None if only the baseline may be recommended.
    """
    return _preferred(context, sets_variable=False)


def with_leading_variable(context: SearchContext, first: ConfigSummary) -> Config:
    """Return `first` with the environment variables of the one that is preferred of those that set some.

    Return `first` unchanged if single probes show no lead of that one that is clearly more than luck: by the spread of
    the baseline's probes (`finalist_margin`), and by the windows of the two. Most variables gain nothing, and each
    finalist costs rounds.
    """
    best, summary = _preferred(context, sets_variable=True), context.history.summary
    if best is None or best.found is None or first.found is None:
        return first.config
    windows = luck(summary(best.config).trials, summary(first.config).trials, FINALIST_DEVIATIONS)
    margin = max(_accepted_slowdown(context), finalist_margin(context.history.baseline_rates), windows)
    if first.found >= (1 - margin) * best.found:
        return first.config
    names = unproven_variables(context.history, best.config)
    return context.space.canonical(Config(values=first.config.values | {name: best.config[name] for name in names}))


def _preferred(context: SearchContext, *, sets_variable: bool) -> ConfigSummary | None:
    """Return the preferred one of those that set an environment variable that is not evident, or of all others."""
    request, history, scores = context.request, context.history, _as_page_faults_say(context, _believed(context))
    found = [
        replace(history.summary(config), found=score)
        for config, score in scores.items()
        if config != request.baseline
        and (config != without_variables(context, config)) is sets_variable
        and not obstacle(context, config)
    ]
    best = simplest(found, request, _accepted_slowdown(context))
    return ConfigSummary(config=best.config, found=best.found) if best else None


def _believed(context: SearchContext) -> dict[Config, float]:
    """Return the scores of the configurations that may be confirmed without rivals.

    If the global batch is free, they are the predictions of the sampler's model, which also knows the other batches of
    the same curve: the knee of single probes differed in each search (decisions/0044). A configuration with the
    baseline's global batch keeps its measured score if that is higher: a curve that it does not follow is no reason to
    change what the model learns.
    """
    scores, unchanged = scores_without_idle_changes(context), context.request.baseline.global_batch_size()
    if context.objective.knee(context.request.goal) is None:
        return scores
    expected = context.expected(list(scores))
    rates = {config: one.samples_per_second for config, one in expected}
    kept = {one: score for one, score in scores.items() if one.global_batch_size() == unchanged}
    return scores | rates | {one: max(score, rates.get(one, score)) for one, score in kept.items()}


def _as_page_faults_say(context: SearchContext, scores: Mapping[Config, float]) -> Mapping[Config, float]:
    """Return `scores`, with what counted page faults say that keeping memory gains, on average over processes.

    What a configuration that keeps no memory loses is told by its own two probes, with and without, and by the faults
    (`PageFaults`). If it was probed without only, its twin is expected to gain what other pairs and the faults say. A
    pair that was slower than the baseline says nothing.
    """
    history, baseline, measured = context.history, context.request.baseline, search_scores(context.history)
    faults, error = page_faults(history), finalist_margin(history.baseline_rates, deviations=1)
    if not faults.spared_share:
        return scores
    kept = [
        (name, value)
        for name in evident_knobs(history)
        for value in context.space.domains[name]
        if value != baseline[name] and any(one[name] == value for one in measured)
    ]
    plain = [one for one in measured if one in scores and one != baseline and not keeps_memory(one, baseline)]
    twins = [(one, Config(values={**one.values, name: value})) for one, (name, value) in product(plain, kept)]
    pairs = [(one, twin) for one, twin in twins if twin in measured]
    lucky = {one: faults.luck(history.summary(one).trials) for one in plain}
    believed, seen = dict(scores), list[float]()
    for config, twin in pairs:
        if twin in scores and scores[twin] >= scores.get(baseline, 0.0):
            seen.append(math.log(measured[twin] / measured[config]))
            gain, _ = faults.gain_beside(seen[-1], error, lucky[config])
            believed[config] = min(believed[config], math.exp(-gain) * scores[twin])
    gain = faults.gain_beside(statistics.fmean(seen), error / math.sqrt(len(seen)), 0.0)[0] if seen else faults.gain
    for config, twin in twins:
        if config not in dict(pairs):
            believed[config] = scores[config] * (1 - lucky[config])
            believed.setdefault(twin, math.exp(gain) * believed[config])
    return believed


def scores_without_idle_changes(context: SearchContext) -> dict[Config, float]:
    """Return the mean scores of all that the search probed; those that differ in idle changes only share one.

    Idle are updates that timing shows to save next to nothing, whatever their rates (`idle_updates`), and changes that
    only speed up computing beside loader workers. The latter are not idle if their own probes differ by more than
    noise. Windows with too few steps to show their precision do not prove that, unless they were cut short.
    """
    found: dict[Config, list[float]] = {}
    history = context.history
    scores, noise = search_scores(history), finalist_margin(history.baseline_rates)
    for config, score in scores.items():
        reduced = without_idle_changes(context, config, score)
        own = scores.get(reduced, score)
        windows = [one for each in (config, reduced) for one in history.summary(each).measurements]
        is_known = all(one.cut_short or one.relative_half_width is not None for one in windows)
        is_idle = not is_known or min(own, score) >= (1 - noise) * max(own, score)
        found.setdefault(without_idle_updates(context, reduced if is_idle else config), []).append(score)
    return {config: typical_rate(values) for config, values in found.items()}


def without_idle_changes(context: SearchContext, config: Config, rate: float) -> Config:
    """Return `config` without its idle changes: those that only speed up computing while loading is slower.

    `rate` is that of `config` in samples/s. Workers load while the loop computes, so that a step takes about as long as
    the slower of the two (decisions/0045). If the baseline's computing alone would take less than 40 % of a step, a
    change that only speeds up computing gains next to nothing.
    """
    request, probes = context.request, context.history.baseline_probes
    measured = [one.result.measurement for one in probes if one.result.measurement is not None]
    if not measured or not loader_workers(config):
        return config
    computing = statistics.median((1 - one.data_wait_share) / one.samples_per_second for one in measured)
    if computing >= MOST_COMPUTING / rate:
        return config
    changed = [name for names in changes_between(request.baseline.values, config.values) for name in names]
    reduced = without(context, config, [name for name in changed if knob(name).only_computes])
    return config if reduced == request.baseline or obstacle(context, reduced) else reduced


def without_idle_updates(context: SearchContext, config: Config) -> Config:
    """Return `config` with the baseline's optimizer update, if its own saves next to nothing (`idle_updates`)."""
    reduced = without(context, config, idle_updates(context.history, config, context.request.baseline))
    return config if reduced == config or obstacle(context, reduced) else reduced


def halved(items: Sequence[Item]) -> list[Sequence[Item]]:
    """Return all of them, then each half, each quarter, and so on down to each one alone; nothing if there are none."""
    found: list[Sequence[Item]] = []
    parts = [items] if items else []
    while parts:
        found += parts
        parts = [half for part in parts if len(part) > 1 for half in (part[: len(part) // 2], part[len(part) // 2 :])]
    return found


def _accepted_slowdown(context: SearchContext) -> float:
    """Return the share by which a single probe with fewer changes may be slower and is still preferred.

    The share grows with the spread of the baseline's probes, so that no change is made because one probe was lucky. If
    the global batch is free, the share is at least the one by which a smaller batch may be slower.
    """
    share = context.objective.knee(context.request.goal)
    if share is not None:
        return max(SIMPLER_SLOWDOWN, share)
    luck = finalist_margin(context.history.baseline_rates, LUCK_DEVIATIONS)
    return max(SIMPLER_SLOWDOWN, luck)
