"""Makes one recommendation, with its reasons, from measured candidates. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from autotune.answer.choice import TIE, choose, confidence
from autotune.answer.crowded_out import is_crowded_out, is_sure_beside_others
from autotune.answer.doubtful_batch import is_batch_doubtful, least_gain
from autotune.answer.global_batch import at_baseline_batch, batch_reasons, global_batch_change
from autotune.answer.no_answer import all_failed
from autotune.answer.predicted_accumulation import accumulation_verified
from autotune.answer.ranking import Ranking, compared, rounded_ratio
from autotune.answer.reasons import is_unconfirmed, left_out_warnings, reasons_for, warnings_of
from autotune.answer.undecided import find_undecided
from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Config, StudyRequest
from autotune.core.results import LossVerdict
from autotune.core.rounds import Rounds
from autotune.errors import NoRecommendation
from autotune.knobs.parsing import typed
from autotune.machine.environment import fingerprint
from autotune.objectives import objective_of
from autotune.objectives.base import MEMORY_STEP, Decision
from autotune.objectives.verdict import instability
from autotune.precision.arithmetic import compared_phrase, full_precision, own_arithmetic, precision_of
from autotune.study.recommendation import Achieved, Confirmation, Recommendation, RunnerUp, baseline_name
from autotune.study.shown import moving, shown_config
from autotune.study.summary import ConfigSummary, Status, faultless_noise
from autotune.targets.commands.command import is_command
from autotune.units import significant

# Gain over the best in a precision whose losses match: a smaller one is not worth the risk (decisions/0048).
LEAST_UNMATCHED_GAIN = 1.05


@dataclass(frozen=True, kw_only=True)
class StudyFacts:
    """The facts about a study, besides the candidates, that its answer reports."""

    study: str  # its folder
    probes: int
    seconds: float  # that the search took
    losses: tuple[LossVerdict, ...] = ()  # the verdicts on dtypes
    busy: bool = False  # there was interference throughout
    certificate: Notice | None = None  # what is known about configurations that were not measured
    probed: Collection[Config] = ()  # all that the study has tried
    noise_scale: float | None = None  # of the gradient, in samples; None: it is not known


def recommend(
    candidates: Sequence[ConfigSummary], request: StudyRequest, facts: StudyFacts, among: Collection[Config] = ()
) -> Recommendation:
    """Choose among candidates that were measured in the same rounds (`choice.py`); the baseline is one if it runs.

    A candidate that is refused never wins, nor one that dropped out of the rounds, unless all others failed. If `among`
    is not empty, only its configurations may be recommended. Raises `NoRecommendation` if none could be measured.
    """
    losses = facts.losses
    ranking = _ranking(candidates, request, losses, among)
    winner, unchanged = ranking.winner, at_baseline_batch(ranking, lambda one: _stability(one, request, losses)[0])
    base = ranking.measured[ranking.baseline] if ranking.baseline is not None else None
    stability, doubt = _stability(winner, request, losses)
    still_open = find_undecided(ranking, facts.seconds)
    others = [one for one in candidates if not one.refused and one.config != request.baseline]
    is_unknown = still_open is not None or any(map(is_unconfirmed, others))  # how much more workers would gain
    spread, own = ranking.rates.noise, faultless_noise(ranking.measured)
    warnings = warnings_of(winner, request, spread, own, busy=facts.busy, probed=facts.probed, is_open=is_unknown)
    left_out = left_out_warnings(candidates, request, winner.config, is_sure=is_sure_beside_others(ranking))
    achieved, own_reasons = _achieved(ranking)
    tokens = winner.tokens_per_second
    batches = {request.global_batch_size(one) for one in (*facts.probed, *(one.config for one in candidates))}
    is_kept = still_open is not None and ranking.chosen == ranking.baseline
    # Otherwise no batch was chosen, and the fastest may be among those that never reached a confirmation.
    is_chosen = len(batches) > 1 and len(ranking.measured) > 1 and not is_kept
    return Recommendation(
        study=facts.study,
        target=request.target,
        target_digest=request.target_digest,
        model=request.facts.name,
        global_batch_change=global_batch_change(winner, request, facts.noise_scale),
        **ranking.figures(ranking.chosen),
        tokens_per_second=None if tokens is None else significant(tokens),
        baseline=dict(request.baseline.values),
        baseline_assumed=request.baseline_assumed,
        baseline_samples_per_second=significant(base.samples_per_second) if base else None,
        baseline_global_batch_size=request.global_batch_size(request.baseline),
        memory_limit_bytes=request.memory_limit_bytes,
        stability=stability,
        loss_verdicts=losses,
        reasons=(
            *(batch_reasons(ranking, unchanged) if is_chosen else ()),
            *own_reasons, *reasons_for(request),
            *_failed(candidates, ranking.measured, request),
            *accumulation_verified(winner, ranking.measured, request),
        ),
        warnings=(*([doubt] if doubt else []), *left_out, *warnings),
        runners_up=tuple(_runner_up(one, ranking) for one in candidates if one.config != winner.config),
        confirmations=tuple(map(_confirmation, ranking.measured)),
        goal=request.goal,
        environment=request.environment,
        facts=request.facts,
        fingerprint=fingerprint(request.environment),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        probes=facts.probes,
        seconds=round(facts.seconds, 1),
        achieved=achieved,
        undecided=still_open,
        at_baseline_batch=unchanged,
        certificate=facts.certificate,
    )  # fmt: skip


def _ranking(
    candidates: Sequence[ConfigSummary], request: StudyRequest, losses: Sequence[LossVerdict], among: Collection[Config]
) -> Ranking:
    """Return the measured candidates, and which of them is chosen. Raises `NoRecommendation` if none may be."""
    measured = [one for one in candidates if one.status is not Status.FAILED and one.scores]
    allowed = _allowed(measured, request)
    if not allowed:
        raise NoRecommendation(all_failed(candidates, request))
    base = next((i for i, one in enumerate(measured) if one.config == request.baseline), None)
    measured, rates, scores = compared(measured, base)
    allowed = _without_undecided_precisions(allowed, measured, scores, request, losses)
    chosen = choose(measured, scores, request, [i for i in allowed if measured[i].config in among] or allowed)
    return Ranking(
        request=request, measured=measured, rates=rates, scores=scores, allowed=allowed, baseline=base, chosen=chosen
    )


def _achieved(ranking: Ranking) -> tuple[Achieved, tuple[Notice, ...]]:
    """Return the winner's gain by the objective, and the objective's reasons."""
    request, winner, baseline = ranking.request, ranking.chosen, ranking.baseline
    objective = objective_of(request.goal)
    gain = speedup = None
    if baseline is not None:
        same, both = baseline == winner, (ranking.scores, ranking.rates)
        gain, speedup = ((1.0, 1.0, 1.0) if same else one.ratio(winner, baseline) for one in both)
    decision = Decision(
        chosen=ranking.winner,
        baseline=None if baseline is None else ranking.measured[baseline],
        baseline_name=baseline_name(assumed=request.baseline_assumed),
        best=max((one for one in ranking.measured if not one.refused), key=lambda one: one.score),
        gain=gain,
        speedup=speedup,
        goal=request.goal,
        facts=request.facts,
    )
    estimate, low, high = (None, None, None) if gain is None else rounded_ratio(gain)
    achieved = Achieved(
        unit=objective.unit,
        score=significant(decision.chosen.score),
        baseline_score=None if decision.baseline is None else significant(decision.baseline.score),
        gain=estimate,
        gain_low=low,
        gain_high=high,
        headline=objective.headline(decision),
    )
    return achieved, objective.reasons(decision)


def _allowed(measured: Sequence[ConfigSummary], request: StudyRequest) -> list[int]:
    may_win = [i for i, c in enumerate(measured) if not c.refused]
    finalists = any(not measured[i].is_behind and measured[i].config != request.baseline for i in may_win)
    return [i for i in may_win if not (finalists and measured[i].is_behind)]


def _without_undecided_precisions(
    allowed: Sequence[int], measured: Sequence[ConfigSummary], scores: Rounds, request: StudyRequest,
    losses: Sequence[LossVerdict],
) -> list[int]:  # fmt: skip
    """Return those of `allowed` whose losses match the reference's, or that gain enough to be taken without that proof.

    Enough is 5 % over the best of those that match. The baseline's precision is never doubted. For a command, a
    precision that there was no time to compare is undecided, too, because a script may compute differently from our
    loop.
    """
    own = precision_of(request.baseline)
    open_ones = [one.values for one in losses if one.verdict == "inconclusive"]
    if is_command(request.target) and request.goal.stability != "off":
        known = [one.values for one in losses] + [own_arithmetic(request.facts)]
        open_ones += [values for one in measured if (values := precision_of(one.config)) not in known]
    sure = [i for i in allowed if (values := precision_of(measured[i].config)) == own or values not in open_ones]
    if not sure:
        return list(allowed)
    best = max(sure, key=scores.typical_rate)
    return [i for i in allowed if i in sure or scores.ratio(i, best)[0] > LEAST_UNMATCHED_GAIN]


def _runner_up(candidate: ConfigSummary, ranking: Ranking) -> RunnerUp:
    measured, request, winner = ranking.measured, ranking.request, ranking.winner
    index = next((i for i, one in enumerate(measured) if one.config == candidate.config), None)
    if index is None:
        failed = notice(Code.FAILED, failure=candidate.failed) if candidate.failed else None
        why = failed or candidate.refused
        assert why is not None, "it has scores otherwise"
        return RunnerUp(config=candidate.config, samples_per_second=None, reason=why)
    level = confidence(ranking.scores, is_baseline=winner.config == request.baseline)
    ratio = ranking.scores.ratio(ranking.chosen, index, level)
    return RunnerUp(
        config=candidate.config,
        samples_per_second=significant(measured[index].samples_per_second),
        reason=candidate.refused or _why_not(candidate, ratio, ranking, is_allowed=index in ranking.allowed),
    )


def _why_not(
    candidate: ConfigSummary, ratio: tuple[float, float, float], ranking: Ranking, *, is_allowed: bool
) -> Notice:
    """Return why the winner was preferred; `ratio` is its score over the candidate's, with the interval's ends."""
    request, winner, (estimate, low, high) = ranking.request, ranking.winner, ratio
    objective = objective_of(request.goal)
    is_larger = candidate.peak_bytes > MEMORY_STEP * max(winner.peak_bytes, 1)
    memory = {"peak_bytes": candidate.peak_bytes, "chosen_bytes": winner.peak_bytes} if is_larger else {}
    if estimate >= 1:
        code = Code.SLOWER_NOT_SIGNIFICANT if low <= 1 else Code.SLOWER
        return notice(code, share=1 - 1 / estimate, worse=objective.worse, **memory)
    share = 1 / estimate - 1
    if winner.config == request.baseline and is_crowded_out(winner, request, 1 / high):
        return notice(Code.FASTER_BESIDE_OTHERS, share=share, better=objective.better, **memory)
    if objective.slack(request.goal) is not None:
        return notice(Code.FASTER_WITHIN_LIMIT, share=share, better=objective.better, **memory)
    is_larger_batch = candidate.config.global_batch_size() > winner.config.global_batch_size()
    is_doubted = is_batch_doubtful(candidate.config, request) and not is_batch_doubtful(winner.config, request)
    least = least_gain(request)
    if is_larger_batch and objective.knee(request.goal) is not None and not (is_doubted and share > least):
        batch = request.global_batch_size(candidate.config)
        return notice(Code.FASTER_WITH_LARGER_BATCH, share=share, better=objective.better, batch=batch, **memory)
    if is_doubted:
        return notice(Code.FASTER_OTHER_MICRO_BATCH, share=share, better=objective.better, least=least, **memory)
    if not is_allowed and not candidate.is_behind:
        least = LEAST_UNMATCHED_GAIN - 1
        return notice(Code.FASTER_PRECISION_UNDECIDED, share=share, better=objective.better, least=least, **memory)
    if high < 1:
        return notice(Code.FASTER_BELOW_THRESHOLD, share=share, better=objective.better, threshold=TIE, **memory)
    return notice(Code.FASTER_NOT_SIGNIFICANT, share=share, better=objective.better, **memory)


def _confirmation(summary: ConfigSummary) -> Confirmation:
    return Confirmation(
        config=summary.config,
        samples_per_second=significant(summary.samples_per_second),
        rounds=tuple(significant(value) for value in summary.rates),
        trials=tuple(trial.number for trial in summary.trials),
        peak_bytes=summary.peak_bytes,
        data_wait_share=round(summary.data_wait_share, 4),
    )


def _failed(
    candidates: Sequence[ConfigSummary], measured: Sequence[ConfigSummary], request: StudyRequest
) -> Iterator[Notice]:
    """Yield a reason for each candidate that was faster in the search and failed when it was re-measured."""
    best = max((candidate.found or 0.0 for candidate in measured), default=0.0)
    for one in candidates:
        if one.failed and (one.found or 0.0) > best:
            yield notice(
                Code.FASTER_BUT_FAILED,
                configuration=shown_config(one.config.values, moving(request)),
                failure=one.failed,
            )


def _stability(
    winner: ConfigSummary, request: StudyRequest, losses: Sequence[LossVerdict]
) -> tuple[Notice, Notice | None]:
    """Return what is known about the winner's losses, and a warning if that is not enough."""
    measured = winner.measurements
    if request.goal.stability == "off":
        seen = next(filter(None, map(instability, measured)), None)
        return notice(Code.LOSSES_NOT_CHECKED), notice(Code.LOSSES_UNJUDGED, doubt=seen) if seen else None
    steps = sum(m.trained_steps for m in measured)
    reference = compared_phrase(winner.config, request.facts)
    skipped = sum(m.skipped_steps + m.calibration_skips for m in measured) or None
    if full_precision(winner.config, request.facts) == winner.config:
        return notice(Code.LOSSES_FINITE, reference=reference, steps=steps, skipped=skipped), None
    is_own = precision_of(winner.config) == precision_of(request.baseline)  # the baseline's, which is not doubted
    hold = _holding(winner.config, request)
    verdict = next((v for v in losses if v.values == precision_of(winner.config)), None)
    if verdict is None:
        late = notice(Code.NOT_COMPARED_IN_TIME, reference=reference)
        doubt = notice(Code.PRECISION_UNDECIDED, reference=reference, why=late, hold=hold)
        return notice(
            Code.LOSSES_NOT_COMPARED, reference=reference, steps=steps, skipped=skipped
        ), None if is_own else doubt
    if verdict.verdict == "ok":
        return verdict.reason, None
    doubt = notice(Code.PRECISION_UNDECIDED, reference=reference, why=verdict.reason, hold=hold)
    return notice(Code.LOSSES_NOT_CLEARED, reference=reference, steps=steps, skipped=skipped), None if is_own else doubt


def _holding(winner: Config, request: StudyRequest) -> str | None:
    """Return the option that keeps the baseline's arithmetic: `--fix amp=none,groups=1`; None: the winner has it."""
    own, values = precision_of(request.baseline), precision_of(winner)
    changed = typed({name: own[name] for name in own if values[name] != own[name]})
    return f"--fix {changed}" if changed else None
