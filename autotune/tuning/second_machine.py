"""The answer on a second machine: winner and baseline run there in turns, on another worker.

Rounds on one machine show what is faster on that machine. Only a second one can show whether this holds elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from autotune.context.search_context import SearchContext
from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.records import Config
from autotune.core.stats import MOST_PROBE_NOISE, typical_rate
from autotune.errors import AutotuneError
from autotune.fleet.base import Fleet
from autotune.fleet.records import FleetWorker
from autotune.study.answers import write_answer
from autotune.study.recommendation import Recommendation
from autotune.tuning.probing import probe_with_retry

SECOND_MACHINE_ROUNDS = 2  # of both: the second one in the reverse order, so that a slow drift affects both alike


def confirm_elsewhere(context: SearchContext, answer: Recommendation) -> Recommendation:
    """Return the answer with a reason or warning from a second machine; unchanged if there is none, or no time.

    The answer is stored already, so neither an interrupt nor a fault of the other machine loses it.
    """
    fleet, winner, baseline = context.fleet, Config(values=answer.params), Config(values=answer.baseline)
    if fleet is None or winner == baseline or answer.speedup is None:
        return answer
    worker = _other(fleet, context.history.judged[-1].trial.result.worker)
    if worker is None:
        return answer
    probe_budget = context.budget.round_probe_budget
    if not context.budget.affords_round([winner, baseline] * SECOND_MACHINE_ROUNDS, probe_budget):
        context.reporter.note(f"There is no time to confirm the answer on a second machine ({worker.name}).")
        return answer
    context.reporter.note(f"Measuring the answer and the baseline once more, on {worker.name}.")
    try:
        ratio = _ratio(replace(context, launcher=fleet.on(worker.id)), winner, baseline)
    except KeyboardInterrupt:
        context.reporter.note("Interrupted: the recommendation stands, confirmed on one machine.")
        return answer
    except AutotuneError as error:
        context.reporter.note(f"The recommendation stands, confirmed on one machine. {error}")
        return answer
    told = structs.replace(_told(answer, worker, ratio), probes=len(context.history.judged))
    write_answer(context.folder, told)
    return told


def _other(fleet: Fleet, home: str) -> FleetWorker | None:
    """Return another worker, on another host if there is one; None if there is no other."""
    workers = fleet.workers()
    host = next((one.host for one in workers if one.name == home), "")
    others = [one for one in workers if one.name != home and not one.quarantined]
    return min(others, key=lambda one: one.host == host, default=None)


def _ratio(context: SearchContext, winner: Config, baseline: Config) -> float | None:
    """Return the winner's score over the baseline's on that machine; None if one of them does not run."""
    scores: dict[Config, list[float]] = {winner: [], baseline: []}
    for number in range(SECOND_MACHINE_ROUNDS):
        for config in (winner, baseline)[:: 1 if number % 2 == 0 else -1]:
            _, verdict = probe_with_retry(context, config, "elsewhere", probe_budget=context.budget.round_probe_budget)
            if not verdict.feasible or not verdict.value:
                return None
            scores[config].append(verdict.value)
    return typical_rate(scores[winner]) / typical_rate(scores[baseline])


def _told(answer: Recommendation, worker: FleetWorker, ratio: float | None) -> Recommendation:
    """Return the answer with a reason if both machines agree, up to the noise of probes; else with a warning."""
    here = answer.speedup or 1.0
    low = (answer.speedup_low or here) * (1 - MOST_PROBE_NOISE)
    high = (answer.speedup_high or here) * (1 + MOST_PROBE_NOISE)
    if ratio is not None and low <= ratio <= high:
        reason = notice(Code.AGREES_ELSEWHERE, worker=worker.name, speedup=ratio)
        return structs.replace(answer, reasons=(*answer.reasons, reason))
    code = Code.FAILS_ELSEWHERE if ratio is None else Code.DIFFERS_ELSEWHERE
    warning = notice(code, worker=worker.name, speedup=ratio, here=here)
    return structs.replace(answer, warnings=(*answer.warnings, warning))
