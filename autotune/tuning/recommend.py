"""From confirmed candidates to one recommendation, with reasons. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from autotune.environment import fingerprint
from autotune.errors import NoRecommendation
from autotune.knobs import KNOBS
from autotune.objective import WORDS, instability
from autotune.objectives import objective_of
from autotune.objectives.base import Contender
from autotune.records import Config, StudyRequest
from autotune.results import LossVerdict, Measurement, Outcome
from autotune.stability import arithmetic, full_precision
from autotune.stats import Rounds
from autotune.tuning import race
from autotune.tuning.achievement import achievement, contenders
from autotune.tuning.advice import advise
from autotune.tuning.confirm import Candidate
from autotune.tuning.opening import shown
from autotune.tuning.recommendation import Confirmation, Recommendation, RunnerUp
from autotune.units import format_bytes

MEMORY_STEP = 1.1  # peaks closer than 10 % are the same: the allocator rounds, the host's resident set wobbles


def recommend(
    candidates: Sequence[Candidate], request: StudyRequest, *, study: str, probes: int, seconds: float,
    losses: Sequence[LossVerdict] = (), busy: bool = False, certificate: str = "",
    probed: Collection[Config] = (),
) -> Recommendation:  # fmt: skip
    """Choose among candidates that were measured in the same rounds; the baseline is among them if it runs.

    Among those that score as high as the best (within 2 %, or within 5 % and the noise of the rounds, or within what
    the objective allows) the objective's own order decides, then the baseline wins if it is there, for nothing
    measurably beats it, however wide the noise; else the smallest global batch, the least memory, the fewest workers,
    full precision before autocast. A candidate that is refused for its arithmetic never wins, nor one that others left
    behind, unless they all failed.
    `losses` are the verdicts on arithmetics; `busy`: others used the machine throughout; `certificate`: what is known
    of configurations that were not measured; `probed`: all that the study has tried. Raises `NoRecommendation` if no
    candidate held.
    """
    held = [candidate for candidate in candidates if not candidate.lost and candidate.scores]
    if all(candidate.refused for candidate in held):
        raise NoRecommendation(_nothing_held(candidates))
    base = next((i for i, candidate in enumerate(held) if candidate.config == request.baseline), None)
    rounds = Rounds([candidate.by_round(candidate.rates) for candidate in held], base)
    scored = Rounds([candidate.by_round(candidate.scores) for candidate in held], base)
    compared = contenders(held, rounds, scored)
    winner = _choose(held, compared, scored, request)
    index = held.index(winner)
    achieved, told = achievement(compared, rounds, scored, index, base, request)
    speedup: tuple[float | None, float | None, float | None] = (None, None, None)
    if base is not None:
        speedup = (1.0, 1.0, 1.0) if base == index else _rounded(rounds.ratio(index, base))
    measured = _measurements(winner)
    width = rounds.half_width(index)
    reasons, warnings = advise(winner, request, rounds.noise, busy=busy, probed=probed)
    stability, doubts = _stability(winner, request, measured, losses)
    return Recommendation(
        study=study,
        target=request.target,
        model=request.facts.name,
        params={knob.name: winner.config[knob.name] for knob in KNOBS},
        samples_per_second=_significant(rounds.mean_rate(index)),
        relative_half_width=None if width is None else round(width, 4),
        tokens_per_second=_tokens(measured),
        speedup=speedup[0],
        speedup_low=speedup[1],
        speedup_high=speedup[2],
        rounds=len(winner.rates),
        baseline=dict(request.baseline.values),
        baseline_assumed=request.baseline_assumed,
        baseline_samples_per_second=None if base is None else _significant(rounds.mean_rate(base)),
        global_batch_size=winner.config.global_batch_size(),
        baseline_global_batch_size=request.baseline.global_batch_size(),
        peak_bytes=winner.peak_bytes,
        memory_limit_bytes=request.memory_limit_bytes,
        headroom_fraction=round(1 - winner.peak_bytes / request.memory_limit_bytes, 4),
        data_wait_share=round(_wait(measured), 4),
        stability=stability,
        loss_verdicts=tuple(losses),
        reasons=(*told, *reasons, *_fallen(candidates, held)),
        warnings=(*warnings, *doubts),
        runners_up=tuple(_runner_up(c, winner, held, rounds, scored, request) for c in candidates if c is not winner),
        confirmations=tuple(_confirmation(c, rounds.mean_rate(i)) for i, c in enumerate(held)),
        goal=request.goal,
        environment=request.environment,
        fingerprint=fingerprint(request.environment),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        probes=probes,
        seconds=round(seconds, 1),
        achieved=achieved,
        certificate=certificate,
    )


def _choose(
    held: Sequence[Candidate], compared: Sequence[Contender], rounds: Rounds, request: StudyRequest
) -> Candidate:
    objective = objective_of(request.goal)
    finalists = [c for c in held if not (c.refused or c.is_behind or c.config == request.baseline)]
    trusted = [i for i, c in enumerate(held) if not c.refused and not (finalists and c.is_behind)]
    best = max(trusted, key=rounds.mean_rate)
    equal = [i for i in trusted if i == best or _tied(rounds, best, i, held[i].config, request)]
    wanted = {i: objective.order(compared[i]) for i in equal}
    equal = [i for i in equal if wanted[i] == min(wanted.values())]
    for i in equal:
        if held[i].config == request.baseline:
            return held[i]
    return held[min(equal, key=lambda i: (_preference(held[i], request), -rounds.mean_rate(i)))]


def _tied(rounds: Rounds, best: int, other: int, config: Config, request: StudyRequest) -> bool:
    """Whether the one that the rounds show best does not count as better than this other one."""
    slack = objective_of(request.goal).slack(request.goal)
    estimate, low, _ = rounds.ratio(best, other, _confidence(rounds, config, request))
    if slack is not None:
        return estimate * (1 - slack) <= 1
    is_near = config == request.baseline or estimate <= 1 + race.MOST_TIE
    return estimate <= 1 + race.TIE or (low <= 1 and is_near)


def _confidence(rounds: Rounds, config: Config, request: StudyRequest) -> float:
    """Of the interval that may set this one apart: the luckiest of many is not to beat the baseline by luck."""
    return race.confidence(rounds.configurations - 1 if config == request.baseline else 1)


def _preference(candidate: Candidate, request: StudyRequest) -> tuple[float, ...]:
    config = candidate.config
    global_batch = config.global_batch_size() if request.goal.global_batch is None else 0
    memory = round(math.log(max(candidate.peak_bytes, 1)) / math.log(MEMORY_STEP))
    changed = sum(config[knob.name] != request.baseline[knob.name] for knob in KNOBS)
    return (global_batch, memory, *(knob.caution(config[knob.name]) for knob in KNOBS), changed)


def _runner_up(
    candidate: Candidate, winner: Candidate, held: Sequence[Candidate], rounds: Rounds, scored: Rounds,
    request: StudyRequest,
) -> RunnerUp:  # fmt: skip
    if candidate not in held:
        why = candidate.lost or candidate.refused or "not measured again"
        return RunnerUp(config=candidate.config, samples_per_second=None, reason=why)
    objective = objective_of(request.goal)
    index, best = held.index(candidate), held.index(winner)
    ratio, low, high = scored.ratio(best, index, _confidence(scored, winner.config, request))
    if candidate.refused:
        reason = candidate.refused
    elif ratio < 1 and objective.slack(request.goal) is not None:
        reason = f"{1 / ratio - 1:.1%} {objective.better}, which is less than may be given up"
    elif ratio < 1:
        why = "too little to count" if high < 1 else "which is within the noise"
        reason = f"{1 / ratio - 1:.1%} {objective.better}, {why}, and not the more cautious choice"
    elif low <= 1:
        reason = f"{1 - 1 / ratio:.1%} {objective.worse}, which is within the noise"
    else:
        reason = f"{1 - 1 / ratio:.1%} {objective.worse}"
    more = candidate.peak_bytes / max(winner.peak_bytes, 1)
    if more > MEMORY_STEP:
        reason += f", needs {format_bytes(candidate.peak_bytes)} instead of {format_bytes(winner.peak_bytes)}"
    rate = _significant(rounds.mean_rate(index))
    return RunnerUp(config=candidate.config, samples_per_second=rate, reason=reason)


def _confirmation(candidate: Candidate, rate: float) -> Confirmation:
    return Confirmation(
        config=candidate.config,
        samples_per_second=_significant(rate),
        rounds=tuple(_significant(value) for value in candidate.rates),
        trials=tuple(trial.number for trial in candidate.trials),
        peak_bytes=candidate.peak_bytes,
        data_wait_share=round(_wait(_measurements(candidate)), 4),
    )


def _fallen(candidates: Sequence[Candidate], held: Sequence[Candidate]) -> tuple[str, ...]:
    """Who would have been recommended by the search alone, and failed when it was measured again."""
    best = max((candidate.found or 0.0 for candidate in held), default=0.0)
    return tuple(
        f"{shown(candidate.config)} was faster in the search and failed when it was measured again: {candidate.lost}"
        for candidate in candidates
        if candidate.lost and (candidate.found or 0.0) > best
    )


def _stability(
    winner: Candidate, request: StudyRequest, measured: Sequence[Measurement], losses: Sequence[LossVerdict]
) -> tuple[str, tuple[str, ...]]:
    """What is known of the winner's losses in one sentence, and warnings where that is not enough."""
    if request.goal.stability == "off":
        seen = next(filter(None, map(instability, measured)), "")
        return "not checked (--stability off)", (f"Nobody judged its losses, as asked, and {seen}.",) if seen else ()
    steps = sum(len(m.losses) for m in measured)
    skipped = sum(m.skipped_steps + m.calibration_skips for m in measured)
    told = f", {skipped} steps skipped by the gradient scaler" if skipped else ""
    finite = f"losses finite over {steps} optimizer steps{told}"
    if full_precision(winner.config) == winner.config:
        return f"full precision; {finite}", ()
    verdict = next((v for v in losses if v.values == arithmetic(winner.config)), None)
    if verdict is None:
        return f"{finite}; not compared with full precision step by step", ()
    if verdict.verdict == "ok":
        return verdict.reason, ()
    doubt = (
        f"Whether it learns what full precision learns is open: {verdict.reason}. Compare a longer run of both, or "
        f"search with --amp none."
    )
    return f"{finite}; not shown to track full precision", (doubt,)


def _measurements(candidate: Candidate) -> list[Measurement]:
    return [t.result.measurement for t in candidate.trials if t.result.measurement is not None]


def _wait(measured: Sequence[Measurement]) -> float:
    return sum(m.data_wait_share for m in measured) / max(len(measured), 1)


def _tokens(measured: Sequence[Measurement]) -> float | None:
    rates = [m.tokens_per_second for m in measured if m.tokens_per_second is not None]
    return _significant(sum(rates) / len(rates)) if rates else None


def _rounded(ratio: tuple[float, float, float]) -> tuple[float | None, float | None, float | None]:
    estimate, low, high = ratio
    return round(estimate, 4), (round(low, 4) if low > 0 else None), (round(high, 4) if math.isfinite(high) else None)


def _significant(value: float) -> float:
    """Five digits: more than any spread supports, few enough to read."""
    return float(f"{value:.5g}")


def _nothing_held(candidates: Sequence[Candidate]) -> str:
    reasons = "; ".join(f"{shown(c.config)}: {c.lost or c.refused}" for c in candidates) or "nothing was measured"
    if WORDS[Outcome.UNSTABLE] in reasons:
        advice = "Training is at the edge of diverging. Lower the learning rate in optimizer(params) of the target."
    elif candidates and all(WORDS[Outcome.TIMEOUT] in candidate.lost for candidate in candidates):
        advice = "The machine was probably overloaded, or your data stopped coming. Search again when it is quiet."
    else:
        advice = "Memory is at its edge here. Search again with more --headroom, or a smaller --batch."
    return f"No configuration survived being measured again: {reasons}. {advice}"
