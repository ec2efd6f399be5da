"""From confirmed candidates to one recommendation, with reasons. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from autotune.environment import fingerprint
from autotune.errors import NoRecommendation
from autotune.knobs import KNOBS
from autotune.records import Config, StudyRequest
from autotune.results import LossVerdict, Measurement
from autotune.stability import arithmetic, full_precision
from autotune.stats import Rounds
from autotune.tuning.advice import advise
from autotune.tuning.confirm import TIE, Candidate
from autotune.tuning.recommendation import Confirmation, Recommendation, RunnerUp
from autotune.units import format_bytes

MEMORY_STEP = 1.1  # peaks closer than 10 % are the same: the allocator rounds, the host's resident set wobbles


def recommend(
    candidates: Sequence[Candidate], request: StudyRequest, *, study: str, probes: int, seconds: float,
    losses: Sequence[LossVerdict] = (), busy: bool = False,
) -> Recommendation:  # fmt: skip
    """Choose among candidates that were all measured in the same rounds; the baseline is among them if it runs.

    Among those that are as fast as the fastest (within 2 %, or within the noise of the rounds) the baseline wins if
    it is there, for nothing measurably beats it; else the smallest global batch, the least memory, the fewest
    workers, full precision before autocast. A candidate that is refused for its arithmetic never wins; `losses` are
    the verdicts on those; `busy`: others used the machine throughout. Raises `NoRecommendation` if no candidate held.
    """
    held = [candidate for candidate in candidates if not candidate.lost and candidate.rates]
    if all(candidate.refused for candidate in held):
        raise NoRecommendation(_nothing_held(candidates))
    rounds = Rounds([candidate.rates for candidate in held])
    winner = _choose(held, rounds, request)
    index = held.index(winner)
    base = next((i for i, candidate in enumerate(held) if candidate.config == request.baseline), None)
    speedup: tuple[float | None, float | None, float | None] = (None, None, None)
    if base is not None:
        speedup = (1.0, 1.0, 1.0) if base == index else _rounded(rounds.ratio(index, base))
    measured = _measurements(winner)
    width = _half_width(rounds)
    reasons, warnings = advise(winner, request, rounds.noise, busy=busy)
    stability, doubts = _stability(winner, request, measured, losses)
    return Recommendation(
        study=study,
        target=request.target,
        model=request.facts.name,
        params={knob.name: winner.config[knob.name] for knob in KNOBS},
        samples_per_second=_significant(rounds.mean_rate(index)),
        relative_half_width=width,
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
        reasons=reasons,
        warnings=(*warnings, *doubts),
        runners_up=tuple(_runner_up(c, winner, held, rounds) for c in candidates if c is not winner),
        confirmations=tuple(_confirmation(c, rounds.mean_rate(i)) for i, c in enumerate(held)),
        goal=request.goal,
        environment=request.environment,
        fingerprint=fingerprint(request.environment),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        probes=probes,
        seconds=round(seconds, 1),
    )


def _choose(held: Sequence[Candidate], rounds: Rounds, request: StudyRequest) -> Candidate:
    trusted = [i for i in range(len(held)) if not held[i].refused]
    fastest = max(trusted, key=rounds.mean_rate)
    equal = [i for i in trusted if _tied(rounds, fastest, i)]
    for i in equal:
        if held[i].config == request.baseline:
            return held[i]
    return held[min(equal, key=lambda i: (_preference(held[i], request), -rounds.mean_rate(i)))]


def _tied(rounds: Rounds, fastest: int, other: int) -> bool:
    estimate, low, _ = rounds.ratio(fastest, other)
    return fastest == other or estimate <= 1 + TIE or low <= 1


def _preference(candidate: Candidate, request: StudyRequest) -> tuple[float, ...]:
    config = candidate.config
    global_batch = config.global_batch_size() if request.goal.global_batch is None else 0
    memory = round(math.log(max(candidate.peak_bytes, 1)) / math.log(MEMORY_STEP))
    changed = sum(config[knob.name] != request.baseline[knob.name] for knob in KNOBS)
    return (global_batch, memory, *(knob.caution(config[knob.name]) for knob in KNOBS), changed)


def _runner_up(candidate: Candidate, winner: Candidate, held: Sequence[Candidate], rounds: Rounds) -> RunnerUp:
    if candidate not in held:
        why = candidate.lost or candidate.refused or "not measured again"
        return RunnerUp(config=candidate.config, samples_per_second=None, reason=why)
    index, best = held.index(candidate), held.index(winner)
    ratio, low, high = rounds.ratio(best, index)
    if candidate.refused:
        reason = candidate.refused
    elif ratio < 1:
        why = "too little to count" if high < 1 else "which is within the noise"
        reason = f"{1 / ratio - 1:.1%} faster, {why}, and not the more cautious choice"
    elif low <= 1:
        reason = f"{1 - 1 / ratio:.1%} slower, which is within the noise"
    else:
        reason = f"{1 - 1 / ratio:.1%} slower"
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


def _half_width(rounds: Rounds) -> float | None:
    """95 % half width of one configuration's mean rate, from the noise that all configurations share."""
    if not rounds.degrees_of_freedom:
        return None
    estimate, low, _ = rounds.ratio(0, 0)
    return round(math.log(estimate / low) / math.sqrt(2), 4)


def _stability(
    winner: Candidate, request: StudyRequest, measured: Sequence[Measurement], losses: Sequence[LossVerdict]
) -> tuple[str, tuple[str, ...]]:
    """What is known of the winner's losses in one sentence, and warnings where that is not enough."""
    if request.goal.stability == "off":
        return "not checked (--stability off)", ()
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
    reasons = "; ".join(f"{_words(c.config)}: {c.lost or c.refused}" for c in candidates) or "nothing was measured"
    return (
        f"No configuration survived being measured again: {reasons}. Memory or stability is at its edge here. "
        f"Search again with more --headroom, or a smaller --batch."
    )


def _words(config: Config) -> str:
    return " ".join(knob.show(config[knob.name]) for knob in KNOBS)
