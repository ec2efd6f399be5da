"""The workers of a study: place, present work, and speed by their own baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.fleet.records import FleetWorker
from autotune.fleet.state import read_workers
from autotune.study.machines import baseline_rates_by_machine, machine_speed
from autotune.study.valid_probes import drift_factor
from autotune.study.view import StudyView
from autotune.units import format_share

NOT_MEASURED = "not known"


@dataclass(frozen=True, kw_only=True)
class WorkerRow:
    """One worker, as the page shows it."""

    name: str
    host: str
    state: str  # its present probe, or that it waits, has left, or is in quarantine
    probes: int  # that it measured
    speed: str  # of the baseline there, compared with the home's
    drift: str  # of the baseline there, from its first probe to the latest


def worker_rows(view: StudyView) -> list[WorkerRow]:
    """Return the workers of a study, the home machine first; empty for a search on one machine."""
    known = baseline_rates_by_machine(view.judged, view.request.baseline)
    workers = {worker.name: worker for worker in read_workers(view.folder)}
    names = dict.fromkeys((*known, *(trial.result.worker for trial in view.trials), *workers))
    return [
        WorkerRow(
            name=name,
            host=workers[name].host if name in workers else "",
            state=_state(workers.get(name), is_running=view.running),
            probes=sum(trial.result.worker == name for trial in view.trials),
            speed=_speed(number, machine_speed(name, known)) if name in known else NOT_MEASURED,
            drift=_drift(known.get(name, ())),
        )
        for number, name in enumerate(names)
        if name
    ]


def _state(worker: FleetWorker | None, *, is_running: bool) -> str:
    if worker is None or worker.has_left:
        return "gone"
    if not is_running:
        return "the search has ended"
    if worker.quarantined:
        return f"gets no probes: {worker.quarantined}"
    return f"measures {worker.job}" if worker.job else "waits"


def _speed(number: int, compared: float) -> str:
    if number == 0:
        return "the home"
    return _compared(compared)


def _drift(rates: Sequence[tuple[int, float]]) -> str:
    """Return how far a machine has moved; single probes that differ are noise (`valid_probes.drift_factor`)."""
    if len(rates) < 2:
        return NOT_MEASURED
    factor = drift_factor(rates[-1][0], rates)
    return "none" if factor == 1.0 else _compared(factor)


def _compared(factor: float) -> str:
    return f"{format_share(abs(factor - 1))} {'faster' if factor >= 1 else 'slower'}"
