"""Computes the speed of each machine of a study from its references, and finds machines that differ from their class.

GPUs of one product differ by 8 % in the mean, and some by half (Sinha et al., SC'22): so each machine measures the
baseline first, and its measurements are converted to the speed of the first machine, the study's home.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from autotune.core.records import Config
from autotune.core.results import IsolatedTiming, ProbeResult, Trial, Verdict
from autotune.study.valid_probes import Judged, baseline_rates, drift_factor, has_drifted
from autotune.units import format_share

ReferenceRates = Sequence[tuple[int, float]]  # number and rate (samples/s) of probes of the baseline, in order
MOST_OFF = 0.10  # of the median machine's speed: beyond it, a machine is not like its class
FEWEST_MACHINES_FOR_MEDIAN = 3  # of two machines it is unknown which one differs: the first counts


def of_machine(judged: Sequence[Judged], worker: str) -> list[Judged]:
    """Return the probes of the machine of `worker`."""
    return [one for one in judged if one.trial.result.worker == worker]


def baseline_rates_by_machine(judged: Sequence[Judged], baseline: Config) -> dict[str, ReferenceRates]:
    """Return the references of each machine that has any, the home's first."""
    workers = dict.fromkeys(trial.result.worker for trial, _ in judged if trial.config == baseline)
    found = {worker: baseline_rates(of_machine(judged, worker), baseline) for worker in workers}
    return {worker: rates for worker, rates in found.items() if rates}


def drift_corrected(judged: Sequence[Judged], baseline: Config) -> list[Judged]:
    """Return the same probes with the values that they would have had at the first speed of the home."""
    known = baseline_rates_by_machine(judged, baseline)
    return [
        Judged(trial, verdict if verdict.value is None else replace(verdict, value=verdict.value / speed(trial, known)))
        for trial, verdict in judged
    ]


def speed(trial: Trial, known: Mapping[str, ReferenceRates]) -> float:
    """Return the speed of a probe's machine at that time; 1 is the home's speed at its first reference.

    `known`: the references of each machine, the home's first. 1 for a machine without references.
    """
    return drift_factor(trial.number, known.get(trial.result.worker, ())) * machine_speed(trial.result.worker, known)


def machine_speed(worker: str, known: Mapping[str, ReferenceRates]) -> float:
    """Return the speed of a machine at its first references; 1 is the home's speed at its first reference."""
    home, rates = next(iter(known.values()), ()), known.get(worker, ())
    if not home or not rates or rates is home:
        return 1.0
    own = rates[0][1] if has_drifted(rates) else statistics.median(rate for _, rate in rates)
    return own / home[0][1]


def quarantine_reasons(rates: Mapping[str, float]) -> dict[str, str]:
    """Return the reasons for quarantine, by machine: its latest reference differs by more than a tenth.

    `rates`: the latest reference of each, the home's first.
    """
    if len(rates) < 2:
        return {}
    first = next(iter(rates.values()))
    usual, whose = (
        (statistics.median(rates.values()), "the median machine")
        if len(rates) >= FEWEST_MACHINES_FOR_MEDIAN
        else (first, "the first machine")
    )
    return {
        name: f"the baseline is {format_share(abs(rate / usual - 1))} {'faster' if rate > usual else 'slower'} there "
        f"than on {whose}"
        for name, rate in rates.items()
        if abs(rate / usual - 1) > MOST_OFF
    }


def at_home(result: ProbeResult, verdict: Verdict, worker_factor: float) -> tuple[ProbeResult, Verdict]:
    """Return both converted to the home's speed; `worker_factor` is the worker's speed over the home's."""
    measured = result.measurement
    if worker_factor == 1.0 or measured is None or verdict.value is None:
        return result, verdict
    scaled = replace(
        measured,
        step_seconds=_scaled(measured.step_seconds, worker_factor),
        compute_only=_alone(measured.compute_only, worker_factor),
        loader_only=_alone(measured.loader_only, worker_factor),
    )
    return replace(result, measurement=scaled), replace(verdict, value=verdict.value / worker_factor)


def _alone(half: IsolatedTiming | None, worker_factor: float) -> IsolatedTiming | None:
    return None if half is None else replace(half, seconds=_scaled(half.seconds, worker_factor))


def _scaled(seconds: Sequence[float], by: float) -> tuple[float, ...]:
    return tuple(one * by for one in seconds)
