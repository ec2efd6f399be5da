"""The confirmation: interleaved rounds among the finalists, from which the slower ones drop out until it is decided.

    finalists: all that may be as fast as the best of the search, as far as one probe can tell; eight at most
    round 1   A B C D E F G H base
          2   base H G F E D C B A     every other round in reverse (ABBA), so that drift meets all alike
          3   A B C D E F G H base     then the faster half goes on
          6   ...                      and of those again: two, and the baseline for the speed-up
    until it is decided, or the time is used up

Of the rules tried on simulated machines with the noise measured here, this one has the least regret at equal cost
(docs/notes/search.md 4; `benchmarks/confirmation_rounds.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from autotune.answer import doubtful_batch
from autotune.answer.choice import FEWEST_FINALISTS, PAYING_GAIN, TIE, claim_confidence, differ_in_batch, preferences
from autotune.answer.confirmation_end import LAST_FINALISTS, SURE_ROUNDS, is_decided, is_good_enough
from autotune.answer.outliers import without_outliers
from autotune.answer.resumed_confirmation import ResumedConfirmation
from autotune.core.records import Config, Goal, StudyRequest
from autotune.core.results import Trial
from autotune.core.rounds import Rounds
from autotune.core.stats import probe_noise
from autotune.knobs.changes import with_fewer_variables
from autotune.objectives import objective_of
from autotune.study.summary import ConfigSummary, rounds_of
from autotune.study.valid_probes import Judged, interference_causes, is_spoiled

MOST_FINALISTS = 8
HALVED_AFTER = (3, 6)  # rounds
FEWEST_ROUNDS = 2  # one has no interval
FEWEST_FREEDOM = 3  # degrees of freedom of the noise: Student's 95 % is 3.2 standard errors with three, 12.7 with one
GOAL_ROUNDS = 8  # of the last two: they detect 2 % with a power of 0.92 on a quiet machine (docs/notes/search.md 4)
# Eight leave the recommended a regret of 1.9 %, twelve 1.2 %, for a sixth more (benchmarks/confirmation_rounds.py).
USUAL_ROUNDS = 12
MOST_CONFIRMATION_ROUNDS = 24  # if it is open whether the fastest beats the baseline: the interval narrows by 1.4
FINALIST_DEVIATIONS = 3.0  # of the difference of two probes: a configuration slower by more is not confirmed


def finalists_left(finalists: int, number: int) -> int:
    """Return how many of `finalists` run in round `number`, the first being 0."""
    for halving in HALVED_AFTER:
        if number >= halving and finalists > LAST_FINALISTS:
            finalists = max(LAST_FINALISTS, finalists // 2)
    return finalists


def probe_count(finalists: int, rounds: int, others: int) -> int:
    """Return the probes of a confirmation; `others` (the baseline) run in every round."""
    return sum(finalists_left(finalists, number) + others for number in range(rounds))


def fewest_rounds(configurations: int) -> int:
    """Return the fewest rounds that give a useful interval: for 2, 3, 4, ... configurations 4, 3, 2, ..."""
    rivals = max(configurations - 1, 0)
    return max(FEWEST_ROUNDS, 1 + math.ceil(FEWEST_FREEDOM / rivals)) if rivals else FEWEST_ROUNDS


def finalist_count(available: int, others: int, affordable: float, fewest: int = FEWEST_FINALISTS) -> int:
    """Return the number of finalists: as many as `affordable` probes allow for eight rounds, at least `fewest`.

    The time budget decides whether a confirmation begins at all, and for how many rounds (decisions/0047).
    """
    few, most = min(available, fewest), min(available, MOST_FINALISTS)
    return next((n for n in range(most, few, -1) if probe_count(n, GOAL_ROUNDS, others) <= affordable), few)


def finalist_margin(references: Sequence[float], deviations: float = FINALIST_DEVIATIONS) -> float:
    """Return the share by which a configuration may have been measured slower than the best and still be as fast.

    It is `deviations` standard deviations of the difference of two probes (docs/notes/search.md 4), by `references`:
    the rates of repeated probes of one configuration.
    """
    return 1 - math.exp(-deviations * math.sqrt(2) * probe_noise([references]))


def survivors(
    rounds: Rounds, running: Sequence[int], keep: int, cautions: Mapping[int, tuple[float, ...]], tie: float = TIE
) -> list[int]:
    """Return the `keep` configurations that go on of those `running`, in their order: the fastest ones.

    Those that are slower than the fastest by at most `tie` are as good: of these the more cautious come first.
    """
    gaps, near = rounds.gaps(running), math.log(1 - tie)
    fastest = max(running, key=lambda one: gaps[one])
    equal = sorted((one for one in running if near <= gaps[one]), key=lambda one: (cautions[one], -gaps[one]))
    slower = sorted((one for one in running if gaps[one] < near), key=lambda one: -gaps[one])
    chosen = list(dict.fromkeys((fastest, *equal, *slower)))[:keep]
    return [one for one in running if one in chosen]


def confirm_in_rounds(
    finalists: Sequence[ConfigSummary], rounds: int, probe: Callable[[Config], Judged], request: StudyRequest, *,
    affords: Callable[[Sequence[Config], bool], bool] | None = None, resumed: ResumedConfirmation | None = None,
    again: Callable[[Trial], Judged | None] = lambda trial: None,
    overruns: Callable[[Sequence[Config]], bool] = lambda running: False,
) -> list[ConfigSummary]:  # fmt: skip
    """Measure all configurations that are still in the confirmation once per round; return them with their rounds.

    A configuration that fails is not measured again. A probe with interference, its repeat included, does not count if
    other probes of its configuration do. A probe far slower than all other rounds of its configuration is measured
    `again` (which returns None if there is no time), or left out. The slower half drops out after rounds three and six,
    but never the baseline; if all that went on failed, those that dropped out are recalled. After the last round a
    configuration stays against which the environment variables of another one have to be proven.

    The confirmation ends before `rounds` when it is decided, when another round `overruns` the budget by too much, or,
    after the fewest rounds, when time no longer `affords` one. A second round, without which nothing is decided, is run
    of those that fit and the baseline if it would overrun with all (a resumed confirmation runs it anew).

    If time affords it, it goes on beyond `rounds` up to the fewest that give a useful interval, and while it is open
    whether the best beats the baseline, what another batch is worth, or, in the first three rounds, which global batch
    wins. `affords` is told whether one of these is open, because later stages can then wait. Rounds that are `resumed`,
    and those that finalists bring along, count.
    """
    baseline, candidates = request.baseline, {one.config: one for one in finalists}
    first = max((number + 1 for one in finalists for number in one.rounds), default=0)
    fewest = fewest_rounds(len(candidates))
    usual, ran = max(rounds, fewest) if affords else rounds, list[Config]()
    for done in range(MOST_CONFIRMATION_ROUNDS if affords or rounds >= USUAL_ROUNDS else rounds):
        number = first + done
        running = [one for one in candidates.values() if not (one.failure or one.is_behind)]
        claims = sum(not one.failure for one in candidates.values() if one.config != baseline)  # as the answer does
        is_batch_open = _have_met(running) and doubtful_batch.is_batch_open(running, request)
        is_batch_open |= done < SURE_ROUNDS and differ_in_batch([one.config for one in running], request)
        if not running or not (done < usual or is_batch_open or _is_open(running, baseline, request.goal, claims)):
            break
        configs = [one.config for one in running][:: 1 if number % 2 == 0 else -1]
        before = resumed.round(configs) if resumed else None
        enough = done >= fewest or (done >= FEWEST_ROUNDS and _is_clear(running, baseline, request.goal, claims))
        late = affords if before is None and (enough or done >= max(rounds, FEWEST_ROUNDS)) else None
        if done and before is None and overruns(configs):
            fitting = _that_fit(running, request, overruns) if done < FEWEST_ROUNDS else set()
            if not fitting:
                break
            candidates |= {one.config: replace(one, is_behind=one.config not in fitting) for one in running}
            configs = [config for config in configs if config in fitting]
        if late and not late(configs, is_batch_open or _may_gain(running, baseline, request.goal, claims)):
            break
        for config, judged in zip(configs, before or map(probe, configs), strict=True):
            candidates[config] = with_round(candidates[config], number, judged)
        ran = configs
        looked = [candidates[config] for config in configs if not candidates[config].failure]
        candidates |= {one.config: one for one in without_outliers(looked, again)}
        changed = _after_round(list(candidates.values()), configs, done + 1, request)
        if changed is None:
            break
        candidates |= {one.config: one for one in changed}
    going = [one.config for one in candidates.values() if not one.is_behind]
    spared = {twin for one in going for twin in with_fewer_variables(one, baseline)}.intersection(ran)
    return [replace(one, is_behind=one.is_behind and one.config not in spared) for one in candidates.values()]


def _after_round(
    candidates: Sequence[ConfigSummary], ran: Sequence[Config], done: int, request: StudyRequest
) -> list[ConfigSummary] | None:
    """Return the contenders after `done` rounds, each marked if it drops out or is recalled; None: it is decided."""
    holding = [one for one in candidates if one.config in ran and not one.failure]
    contenders = [one for one in holding if one.config != request.baseline]
    finalists = sum(one.config != request.baseline for one in candidates)
    if finalists and not contenders:
        contenders = [one for one in candidates if one.is_behind and not one.failure]
        if not contenders and done >= FEWEST_ROUNDS:
            return None
    elif done >= SURE_ROUNDS and _has_winner(holding, request):
        return None
    going = _faster_half(contenders, finalists_left(finalists, done), request)
    return [replace(one, is_behind=one.config not in going) for one in contenders]


def with_round(candidate: ConfigSummary, number: int, judged: Judged) -> ConfigSummary:
    """Return the candidate after one more round, without the rounds that interference makes doubtful.

    All rounds with interference are left out if two others remain; else the rounds that it spoiled, if one other
    remains. A round that was faster than all remaining ones is kept, because interference can only slow a probe down. A
    round that was left out never has to come back, because later rounds only add to those that remain.
    """
    trials, verdicts = (*candidate.trials, judged.trial), (*candidate.verdicts, judged.verdict)
    pairs = list(zip(trials, verdicts, strict=True))
    counts = [not (verdict.feasible and interference_causes(trial.result)) for trial, verdict in pairs]
    if sum(counts) < FEWEST_ROUNDS:
        counts = [not (verdict.feasible and is_spoiled(trial.result)) for trial, verdict in pairs]
    counts = counts if any(counts) else [True] * len(counts)
    fastest = max((verdict.value or 0.0 for (_, verdict), one in zip(pairs, counts, strict=True) if one), default=0.0)
    counts = [one or (v.value or 0.0) > fastest for (_, v), one in zip(pairs, counts, strict=True)]
    return replace(
        candidate,
        trials=tuple(itertools.compress(trials, counts)),
        verdicts=tuple(itertools.compress(verdicts, counts)),
        rounds=tuple(itertools.compress((*candidate.rounds, number), counts)),
        left_out=(*candidate.left_out, *itertools.compress(trials, [not one for one in counts])),
    )


def rounds_without_interference(candidate: ConfigSummary) -> int:
    """Return the number of its rounds without interference."""
    return sum(not interference_causes(trial.result) for trial in candidate.trials)


def tie(goal: Goal) -> float:
    """Return the share of the best score by which a configuration may be lower and still win."""
    slack = objective_of(goal).slack(goal)
    return max(TIE, objective_of(goal).knee(goal) or 0.0) if slack is None else slack


def _is_clear(running: Sequence[ConfigSummary], baseline: Config, goal: Goal, claims: int) -> bool:
    """Return whether two rounds are enough if more overrun the budget: the fastest gains surely, or at most a tie."""
    ratios = _over_baseline(running, baseline, goal, claims)
    if ratios is None or len(running) < 2 or not _have_enough_rounds(running):
        return False
    estimate, low, _ = max(ratios, default=(0.0, 0.0, 0.0))
    return low > 1 or estimate <= 1 + TIE


def _is_open(running: Sequence[ConfigSummary], baseline: Config, goal: Goal, claims: int) -> bool:
    """Return whether more rounds may still tell if the fastest beats the baseline."""
    estimate, low, _ = max(_over_baseline(running, baseline, goal, claims) or [(0.0, 0.0, 0.0)])
    return low <= 1 and estimate > 1 + TIE


def _may_gain(running: Sequence[ConfigSummary], baseline: Config, goal: Goal, claims: int) -> bool:
    """Return whether the answer is undecided now: an interval includes both 1 and a gain that pays for a change."""
    ratios = _over_baseline(running, baseline, goal, claims) or []
    return any(low <= 1 and high > 1 + PAYING_GAIN for _, low, high in ratios)


def _over_baseline(
    running: Sequence[ConfigSummary], baseline: Config, goal: Goal, claims: int
) -> list[tuple[float, float, float]] | None:
    """Return the score of each rival over the baseline's, with its interval, for the fastest of `claims`.

    None where the baseline does not run, or where the objective gives up speed for something else.
    """
    if baseline not in (names := [one.config for one in running]) or objective_of(goal).slack(goal) is not None:
        return None
    scores, base = rounds_of(running), names.index(baseline)
    rivals = [i for i, one in enumerate(running) if i != base and not one.refused]
    return [scores.ratio(i, base, claim_confidence(claims)) for i in rivals]


def _faster_half(contenders: Sequence[ConfigSummary], keep: int, request: StudyRequest) -> set[Config]:
    """Return the `keep` configurations that go on; all contenders while they cannot be compared."""
    if len(contenders) <= keep or not _have_met(contenders):
        return {one.config for one in contenders}
    scores, keys = rounds_of(contenders), dict(enumerate(preferences(contenders, request)))
    going = survivors(scores, range(len(contenders)), keep, keys, tie(request.goal))
    return {contenders[one].config for one in going}


def _that_fit(
    running: Sequence[ConfigSummary], request: StudyRequest, overruns: Callable[[Sequence[Config]], bool]
) -> set[Config]:
    """Return those that a second round has time for, and the baseline; empty if it has no time for any.

    The most cautious ones come first, of those that are as fast as one round can tell: a change that needs proof is
    compared with a configuration without it, which so cannot drop out alone.
    """
    contenders = [one for one in running if one.config != request.baseline]
    if not _have_met(contenders):
        return set()
    keys, gaps = preferences(contenders, request), rounds_of(contenders).gaps(range(len(contenders)))
    least = max(gaps[one] for one in range(len(contenders))) + math.log(1 - finalist_margin(()))
    order = sorted(
        range(len(contenders)), key=lambda i: (gaps[i] < least, keys[i] if gaps[i] >= least else (), -gaps[i])
    )
    others = {one.config for one in running} - {one.config for one in contenders}
    for keep in range(len(contenders) - 1, 0, -1):
        fitting = others | {contenders[one].config for one in order[:keep]}
        if not overruns([*fitting]):
            return fitting
    return set()


def _have_met(candidates: Sequence[ConfigSummary]) -> bool:
    """Return whether some round counts for all of them; otherwise they cannot be compared yet."""
    return bool(candidates) and bool(set.intersection(*(set(one.rounds) for one in candidates)))


def _have_enough_rounds(candidates: Sequence[ConfigSummary]) -> bool:
    """Return whether enough rounds were without interference to end earlier than planned."""
    return _have_met(candidates) and all(rounds_without_interference(one) >= FEWEST_ROUNDS for one in candidates)


def _has_winner(holding: Sequence[ConfigSummary], request: StudyRequest) -> bool:
    if not _have_enough_rounds([one for one in holding if not one.refused]):
        return False
    scores, running = rounds_of(holding), [i for i, one in enumerate(holding) if not one.refused]
    baseline = next((i for i in running if holding[i].config == request.baseline), None)
    near, objective = tie(request.goal), objective_of(request.goal)
    is_plain = near <= TIE and objective.slack(request.goal) is None
    return is_decided(scores, running, near) or (is_plain and is_good_enough(scores, running, baseline))
