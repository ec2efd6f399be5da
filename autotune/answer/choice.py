"""The choice: which configurations are measured again, and which of those is recommended. Pure.

    finalists: all that may be as fast as the best one of the search, as far as one probe can tell

    held      where BatchNorm takes statistics: the baseline's micro-batch, or what is surely worth another one
    knee      where the global batch is free: only the smallest one that is nearly as fast as the fastest
    best      the highest score of all that may be recommended
    tied      those that are as good as the best: within 2 %, within 5 % and not significantly slower, or within what
              the objective may give up
    baseline  if it is tied with the best (and nothing tied is wanted more by the objective), it stays
    winner    of those that are tied and beat the baseline as the best does, the preferred one (`preferences`)

Only a configuration that is measurably better replaces the baseline; a tie with a better one is not enough. One
exception: it is probably better by more than 5 % and at the worst hardly slower (`LEAST_UNPROVEN_GAIN`). The
answer then says so.

No configuration replaces a baseline that other processes kept from the cores (`is_crowded_out`), unless it gains more
than they can have cost: threads that wait for each other lose far more by an occupied core than a single thread does. A
single thread was 7 to 18 times as fast beside a load on one of two cores, and half as fast without it
(docs/how-good-is-a-search.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.answer.crowded_out import is_crowded_out
from autotune.answer.doubtful_batch import is_micro_batch_doubtful, without_unproven_batches
from autotune.core.records import SEARCH_PURPOSES, Config, StudyRequest
from autotune.core.results import Trial
from autotune.core.rounds import Rounds
from autotune.core.stats import HALF_WIDTH_DEVIATIONS, MOST_PROBE_NOISE
from autotune.knobs import KNOBS
from autotune.objectives import objective_of
from autotune.objectives.base import MEMORY_STEP
from autotune.sampler.space import change_count
from autotune.study.history import summarize
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import Judged

FEWEST_FINALISTS = 3
TIE = 0.02  # faster by less is not worth a change
MOST_TIE = 0.05  # beyond it an interval that includes 0 is lack of rounds, and no tie of two finalists
PAYING_GAIN = 0.1  # a gain that pays for a change: an interval below it excludes a gain worth having
LEAST_UNPROVEN_GAIN = 0.05  # over the baseline: enough without proof, if the interval excludes a loss of more than TIE
PROBABLE_CONFIDENCE = 0.8  # confidence of an interval: one value in ten lies beyond its upper end
# Where batches are compared, a model of eight or more probes counts as much as this many rounds (benchmarks/knee.py).
MODEL_ROUNDS = 4
LUCK_DEVIATIONS = 0.7  # standard deviations of the difference of two probes: a probe may be faster by less by chance
SCARCE_FREE_SHARE = 0.3  # of the limit: where more memory is free, less use of memory has no value


def finalists(
    judged: Sequence[Judged], request: StudyRequest, *, most: int = FEWEST_FINALISTS, margin: float = 0.0
) -> list[ConfigSummary]:
    """Return the configurations to measure again, fastest first: at most `most`, at least three if there are.

    Within these bounds, it returns all that are slower than the fastest by at most the share `margin`. The order of
    choice is: the fastest; then the preferred one (`preferences`) of those that are equally fast within noise; then the
    next fastest. A configuration whose last probe failed is left out: a crash that a fresh process did not repeat does
    not count, a failed confirmation does. Where the objective gives up speed for something else, the fastest is
    followed by those that are best at it within the speed that may be given up. Where the global batch is free, the
    fastest is followed by those that its two answers need (`_ends`).
    """
    results: dict[Config, list[Judged]] = {}
    for one in judged:
        if one.verdict.feasible and one.verdict.value is not None and one.trial.purpose in SEARCH_PURPOSES:
            results.setdefault(one.trial.config, []).append(one)
    latest = {trial.config: verdict for trial, verdict in judged}
    found = {config: summarize(config, own) for config, own in results.items() if latest[config].feasible}
    ranked = sorted(found.values(), key=lambda one: -one.score)
    if not ranked:
        return []
    best, slack = ranked[0].score, objective_of(request.goal).slack(request.goal)
    ends = _ends(ranked, request, max(margin, MOST_PROBE_NOISE))
    least = best * (1 - (MOST_PROBE_NOISE if slack is None else slack))
    equal = [one for one in ranked[1:] if one.config != request.baseline and one.score >= least]
    keys = preferences(equal, request)  # the baseline is confirmed in any case
    near = [equal[one] for one in sorted(range(len(equal)), key=lambda one: keys[one])]
    within = sum(one.score >= best * (1 - max(margin, slack or 0.0)) for one in ranked)
    count = min(most, max(within, len(ends), FEWEST_FINALISTS))
    few = most < FEWEST_FINALISTS
    seats = min(1, count - 2 + few) if slack is None else count - 1  # for those not chosen for speed alone
    order = {one.config: one for one in (ranked[0], *ends, *near[: max(seats, 0)], *ranked)}
    chosen = sorted([*order.values()][:count], key=lambda one: -one.score)
    return [ConfigSummary(config=one.config, found=one.found) for one in chosen]


def simplest(found: Sequence[ConfigSummary], request: StudyRequest, slowdown: float) -> ConfigSummary | None:
    """Return the preferred one (`preferences`) of those whose score is within a tolerance below the best; None: none.

    The tolerance, a share of the best score, is the larger of `slowdown` and the measurement noise (`luck`).
    """
    if not found:
        return None
    best = max(found, key=_found)
    near = [one for one in found if _found(one) >= _found(best) * (1 - max(slowdown, luck(one.trials, best.trials)))]
    keys = preferences(near, request)
    return near[min(range(len(near)), key=keys.__getitem__)]


def _found(one: ConfigSummary) -> float:
    return one.found or 0.0


def luck(one: Sequence[Trial], other: Sequence[Trial], deviations: float = LUCK_DEVIATIONS) -> float:
    """Return the share by which `one` may be slower than `other` by chance, by the intervals of their windows."""
    widths = [min((w for t in trials if (w := _half_width(t)) is not None), default=0.0) for trials in (one, other)]
    return deviations * math.hypot(*widths) / HALF_WIDTH_DEVIATIONS


def _half_width(trial: Trial) -> float | None:
    return trial.result.measurement.relative_half_width if trial.result.measurement else None


def _ends(ranked: Sequence[ConfigSummary], request: StudyRequest, noise: float) -> list[ConfigSummary]:
    """Return the finalists that answers with a free global batch need, most needed first; none where it is held.

    They are the fastest at the knee, the fastest at the baseline's global batch, and the fastest of each global batch
    that may turn out to be the knee, as far as one probe can tell: smaller ones in descending order, then the next
    larger one.
    """
    share = objective_of(request.goal).knee(request.goal)
    if share is None:
        return []
    fastest: dict[int, ConfigSummary] = {}
    for one in ranked:
        if one.config != request.baseline:  # it is confirmed in any case
            fastest.setdefault(one.config.global_batch_size(), one)
    least = (1 - share) * ranked[0].score
    by_size = sorted(fastest.values(), key=lambda one: _size(one.config, request))
    may = [one for one in by_size if one.score >= (1 - noise) * least]
    knee = next((number for number, one in enumerate(may) if one.score >= least), 0)
    unchanged = fastest.get(request.baseline.global_batch_size())
    return [*may[knee : knee + 1], *([unchanged] if unchanged else []), *may[:knee][::-1], *may[knee + 1 : knee + 2]]


def at_knee(
    summaries: Sequence[ConfigSummary], rounds: Rounds, request: StudyRequest, allowed: Sequence[int]
) -> list[int]:
    """Return those of `allowed` with the smallest global batch that is probably fast enough, as a share of the best.

    The baseline is always among them: another one replaces it only if it is measurably better. Where the baseline is
    not fast enough, only configurations that are measurably better than it count, if there are any. Where the global
    batch is held, all of `allowed` are returned. No global batch below the baseline's counts as smaller than it,
    because keeping the baseline's is the least change.
    """
    share = objective_of(request.goal).knee(request.goal)
    if share is None:
        return list(allowed)
    near = [one for one, lead in behind(summaries, rounds, allowed).items() if _is_fast_enough(lead, share)]
    base = next((one for one in allowed if summaries[one].config == request.baseline), None)
    if base is not None and base not in near:
        near = [one for one in near if not is_tied(rounds, one, base, summaries, request)] or near
    sizes = {one: _size(summaries[one].config, request)[0] for one in near}
    return [one for one in allowed if one == base or sizes.get(one) == min(sizes.values())]


def differ_in_batch(configs: Sequence[Config], request: StudyRequest) -> bool:
    """Return whether the global batch is free and differs between these, the baseline left out."""
    is_free = objective_of(request.goal).knee(request.goal) is not None
    return is_free and len({one.global_batch_size() for one in configs if one != request.baseline}) > 1


def behind(
    summaries: Sequence[ConfigSummary], rounds: Rounds, allowed: Sequence[int]
) -> dict[int, tuple[float, float]]:
    """Return the best one's speed over that of each of `allowed`: estimate and upper bound.

    If the sampler's model has predictions for both, they count as `MODEL_ROUNDS` further rounds.
    """
    best = max(allowed, key=rounds.typical_rate)
    found = {}
    for one in allowed:
        estimate, _, high = rounds.ratio(best, one, PROBABLE_CONFIDENCE)
        mine, its = summaries[one].expected, summaries[best].expected
        known = rounds.count(best, one)
        weight = MODEL_ROUNDS / (MODEL_ROUNDS + known) if mine and its and known else 0.0
        drawn = estimate ** (1 - weight) * ((its or 1.0) / (mine or 1.0)) ** weight
        found[one] = (drawn, drawn * (high / estimate) ** (1 - weight) if one != best else drawn)
    least = min(estimate for estimate, _ in found.values())  # of the fastest by rounds and predictions together
    return {one: (estimate / least, high / least) for one, (estimate, high) in found.items()}


def _is_fast_enough(lead: tuple[float, float], share: float) -> bool:
    """Return whether it is slower than the best by at most `share`, and probably by at most `TIE` more.

    A batch that is too large costs little speed, one that is too small costs much: in doubt the larger one is taken.
    """
    estimate, most = lead
    return estimate == 1.0 or (estimate * (1 - share) <= 1 and most * (1 - share - TIE) <= 1)


def preferences(summaries: Sequence[ConfigSummary], request: StudyRequest) -> list[tuple[float, ...]]:
    """Return a sort key for each of the summaries, which are all equally good: the lowest is preferred.

    First comes the preference of the objective. Then, in this order: where the global batch is free, the baseline's,
    then smaller ones, then larger ones; the baseline's micro-batch where BatchNorm takes its statistics from it; fewer
    changes to the baseline; full precision; no environment variable; less memory, where memory is scarce; fewer
    processes and threads.
    """
    objective = objective_of(request.goal)
    first = min(summaries, key=objective.order, default=None)
    least = min((one.peak_bytes for one in summaries), default=0)
    return [
        (
            objective.order(one) if first is not None and objective.is_lower(first, one) else 0.0,
            *_cautions(one.config, request),
            float(_is_scarce(one, request) and one.peak_bytes > MEMORY_STEP * least),
            sum(knob.caution(one.config[knob.name]) for knob in KNOBS if not knob.numerics),
        )
        for one in summaries
    ]


def _cautions(config: Config, request: StudyRequest) -> tuple[float, ...]:
    baseline = request.baseline
    return (
        *_size(config, request),
        float(is_micro_batch_doubtful(config, request)),
        float(change_count(config, baseline)),
        sum(knob.caution(config[knob.name]) for knob in KNOBS if knob.numerics),
        float(sum(bool(knob.environ(config[knob.name])) for knob in KNOBS)),
    )


def _size(config: Config, request: StudyRequest) -> tuple[float, float, float]:
    """Return a sort key of the global batch where that is free: the baseline's, then smaller ones, then larger ones."""
    now, before = config.global_batch_size(), request.baseline.global_batch_size()
    if request.goal.global_batch is not None:
        return 0.0, 0.0, 0.0
    return float(max(now, before)), float(now != before), float(now)


def _is_scarce(summary: ConfigSummary, request: StudyRequest) -> bool:
    return summary.peak_bytes > (1 - SCARCE_FREE_SHARE) * request.memory_limit_bytes


def choose(summaries: Sequence[ConfigSummary], rounds: Rounds, request: StudyRequest, allowed: Sequence[int]) -> int:
    """Return the position of the recommended one; `rounds` are of their scores, `allowed` may be recommended."""
    allowed = without_unproven_batches(allowed, [one.config for one in summaries], rounds, request)
    allowed = at_knee(summaries, rounds, request, allowed)
    best = max(allowed, key=rounds.typical_rate)
    tied = [one for one in allowed if one == best or is_tied(rounds, best, one, summaries, request)]
    base = next((one for one in allowed if summaries[one].config == request.baseline), None)
    if base is not None:
        level = confidence(rounds, is_baseline=True)
        tied = [one for one in tied if not is_crowded_out(summaries[base], request, rounds.ratio(one, base, level)[1])]
        if not tied:
            return base
        objective = objective_of(request.goal)
        rivals = [one for one in tied if objective.is_lower(summaries[one], summaries[base])]
        if base in tied and not rivals:
            return base
        if base not in tied:
            rivals = [one for one in tied if one == best or not is_tied(rounds, one, base, summaries, request)]
        tied = rivals
    keys = preferences([summaries[one] for one in tied], request)
    return min(zip(keys, tied, strict=True), key=lambda pair: (pair[0], -rounds.typical_rate(pair[1])))[1]


def is_tied(rounds: Rounds, best: int, other: int, summaries: Sequence[ConfigSummary], request: StudyRequest) -> bool:
    """Return whether `best`, the best by the rounds, does not count as better than `other`."""
    slack = objective_of(request.goal).slack(request.goal)
    is_baseline = summaries[other].config == request.baseline
    estimate, low, _ = rounds.ratio(best, other, confidence(rounds, is_baseline=is_baseline))
    if slack is not None:
        return estimate * (1 - slack) <= 1
    if is_baseline and estimate > 1 + LEAST_UNPROVEN_GAIN and low >= 1 - TIE:
        return False
    is_near = is_baseline or estimate <= 1 + MOST_TIE
    return estimate <= 1 + TIE or (low <= 1 and is_near)


def confidence(rounds: Rounds, *, is_baseline: bool) -> float:
    """Return the confidence of the interval that may set two apart: the luckiest of many must not beat the baseline."""
    return claim_confidence(rounds.configurations - 1 if is_baseline else 1)


def claim_confidence(rivals: int) -> float:
    """Return the confidence of the interval for a claim that the fastest of `rivals` beats the baseline.

    The confidence that none of these claims is false is 95 %.

    It is one-sided, by Bonferroni; a single rival has the two-sided 95 % of every other interval. Without the
    correction, the luckiest of eight equal configurations was claimed to be faster in 7 to 16 % of the confirmations
    (`benchmarks/confirmation_rounds.py`).
    """
    return max(0.95, 1 - 2 * 0.05 / max(rivals, 1))
