"""Judges interference by other work: which probes it spoiled, which probes count, and the drift of the machine. Pure.

The baseline is probed again and again, and shows how fast the machine was at each probe:

rate of the baseline   │×···           ××···                ×·······     interpolated between its probes
number of the probe    │0              9 10                 19           a move is believed once two show it
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autotune.core.codes import Code
from autotune.core.interference_readings import MOST_WAIT_SHARE, GpuUse
from autotune.core.notices import Notice, notice
from autotune.core.records import SEARCH_PURPOSES, Config
from autotune.core.results import ProbeResult, Trial, Verdict
from autotune.core.stats import MOST_PROBE_NOISE
from autotune.units import format_share

# A power cap is how a large GPU normally runs: recorded, and no interference (docs/notes/timing.md 2).
HARMFUL = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake")
POWER_CAP = "power cap"
MOST_CLOCK_DRIFT = 0.03  # of the SM clock within a window; a steady GPU stays within it (docs/notes/timing.md 2)
LEAST_UTILIZATION = 0.9  # above it, the probe itself does not lower the clock: an idle GPU does
MOST_FOREIGN_SHARE = MOST_WAIT_SHARE  # of a GPU's time: kernels of others make ours wait as long
BACK_OFF_SECONDS = 2.0  # before a repeat: a compilation or a backup takes longer, most bursts are over
MOST_VAIN_REPEATS = 3  # in a row: then others use the machine all the time, and repeats would only double the cost
REPEATED = (*SEARCH_PURPOSES, "confirm")  # whose probes are repeated; a reference comes again of itself
MOST_SLOWDOWN = 1.1  # by others, of a probe that counts if need be: gains that are worth a change are of this size
BASELINE_EVERY = 8  # search probes between two of the baseline (docs/notes/timing.md 3)
MOST_DRIFT = MOST_PROBE_NOISE  # of the baseline's rate: less is noise between probes (the same note)
# Times a typical probe: a baseline that takes longer is too expensive to be probed again and again.
SLOW_BASELINE_RATIO = 2.0


class Judged(NamedTuple):
    """A probe and its verdict, by the study's request."""

    trial: Trial
    verdict: Verdict


def interference_causes(result: ProbeResult) -> tuple[Notice, ...]:
    """Return the known outside causes that slowed the probe; empty: none."""
    found = []
    interference = result.measurement.interference if result.measurement is not None else None
    if interference is not None and interference.is_noticeable:
        cores, share = interference.foreign_cores or 0, interference.run_queue_wait_share or 0
        found.append(notice(Code.CORES_BUSY, cores=cores, wait_share=share))
    return tuple(found) if result.gpu is None else (*found, *_on_the_card(result.gpu))


def told_causes(result: ProbeResult) -> str:
    """Return in words the known outside causes that slowed the probe; empty: none."""
    return "; ".join(one.text for one in interference_causes(result))


def _on_the_card(gpu: GpuUse) -> list[Notice]:
    """Return the causes on the GPU; missing readings, and contexts that compute nothing, are no causes."""
    found = [notice(Code.GPU_THROTTLED, reason=reason) for reason in gpu.throttle_reasons if reason in HARMFUL]
    if (gpu.foreign_share or 0) > MOST_FOREIGN_SHARE:
        found.append(notice(Code.GPU_SHARED, share=gpu.foreign_share))
    low, high = gpu.sm_clock_mhz or (0, 0)
    steady = high - low <= MOST_CLOCK_DRIFT * high or POWER_CAP in gpu.throttle_reasons
    if not steady and (gpu.utilization or 0) >= LEAST_UTILIZATION:
        found.append(notice(Code.GPU_CLOCK_MOVED, low=low, high=high))
    return found


def is_spoiled(result: ProbeResult) -> bool:
    """Return whether others slowed the probe by more than 10 %, or, as on its GPU, by an unknown amount."""
    interference = result.measurement.interference if result.measurement is not None else None
    on_cores = interference is not None and interference.is_noticeable
    return is_crowded(result) or len(interference_causes(result)) > on_cores


def is_crowded(result: ProbeResult) -> bool:
    """Return whether others kept the probe from the cores, so that its steps took over 10 % longer."""
    interference = result.measurement.interference if result.measurement is not None else None
    return interference is not None and interference.is_noticeable and interference.slowdown > MOST_SLOWDOWN


def severity(result: ProbeResult) -> tuple[int, float]:
    """Return a key to compare interference: causes on the GPU and the host, then how much longer steps took."""
    interference = result.measurement.interference if result.measurement is not None else None
    slowdown = interference.slowdown if interference is not None else 1.0
    return len(interference_causes(result)), slowdown


def valid_trials(judged: Sequence[Judged]) -> list[Judged]:
    """Return the probes that count: without those that were superseded by a repeat, because others slowed them.

    The repeat counts, unless interference slowed it more than the first. Of the baseline, one probe always counts.
    """
    superseded = set()
    last: dict[Config | int, Trial] = {}  # of a round by number: the next round probes the same configuration
    for trial, _ in judged:
        if trial.purpose not in REPEATED:
            continue
        place = (
            trial.config
            if trial.purpose in ("baseline", "search")
            else trial.number
            if trial.repeats is None
            else trial.repeats
        )
        before, kept = last.get(place), trial
        if before is not None and _is_repeat(trial, before):
            kept, lost = the_one_that_counts(before, trial)
            superseded.add(lost.number)
        last[place] = kept
    return [one for one in judged if one.trial.number not in superseded]


def _is_repeat(trial: Trial, before: Trial) -> bool:
    """Return whether one of two probes of a configuration repeats the other."""
    again = trial.purpose == before.purpose == "baseline" and before.result.measurement is not None
    return again or bool(interference_causes(before.result)) or trial.repeats == before.number


def the_one_that_counts(first: Trial, repeat: Trial) -> tuple[Trial, Trial]:
    """Return the one of the two that counts, then the other: not a repeat of a baseline that ran, if it did not."""
    if repeat.purpose == "baseline" and first.result.measurement is not None and repeat.result.measurement is None:
        return first, repeat
    if interference_causes(repeat.result) and severity(first.result) <= severity(repeat.result):
        return first, repeat
    return repeat, first


def is_baseline_due(judged: Sequence[Judged], baseline: Config, typical_seconds: float) -> bool:
    """Return whether the baseline should be probed again now: `BASELINE_EVERY` search probes after the last time.

    It is also due at once if only the last one shows a drift: the next one confirms it or not.
    """
    since = 0
    last: Trial | None = None
    for trial, verdict in judged:
        if trial.purpose in ("baseline", "reference"):
            if not verdict.feasible:
                return False
            last, since = trial, 0
        since += trial.purpose == "search"
    if last is None or last.result.elapsed_seconds > SLOW_BASELINE_RATIO * typical_seconds:
        return False
    return since >= BASELINE_EVERY or (
        since == 0 and _stands_alone(baseline_rates(judged, baseline), judged[-1].trial.number)
    )


def _stands_alone(rates: Sequence[tuple[int, float]], number: int) -> bool:
    """Return whether the latest reference is that probe, shows a drift, and follows none that could confirm it."""
    if len(rates) < 2 or rates[-1][0] != number or rates[-2][0] == number - 1:
        return False
    return abs(rates[-1][1] / rates[0][1] - 1) > MOST_DRIFT and abs(_moves(rates)[-1]) <= MOST_DRIFT


def baseline_rates(judged: Sequence[Judged], baseline: Config) -> list[tuple[int, float]]:
    """Return number and rate (samples/s) of every probe of the baseline without interference, in order."""
    return [
        (trial.number, verdict.value)
        for trial, verdict in judged
        if trial.purpose in ("baseline", "reference") and trial.config == baseline
        if verdict.feasible and verdict.value and not interference_causes(trial.result)
    ]


def drift_factor(number: int, rates: Sequence[tuple[int, float]]) -> float:
    """Return the speed of the machine at probe `number`; 1 is its speed at the first of `rates`.

    Linear between two references, constant beyond the last; 1 throughout unless two in a row moved by more than 5 %,
    because the noise of single probes must not reorder anything (`benchmarks/drift.py`).
    """
    if not has_drifted(rates):
        return 1.0
    return 1 + float(np.interp(number, [reference for reference, _ in rates], _moves(rates)))


def has_drifted(rates: Sequence[tuple[int, float]]) -> bool:
    """Return whether two references in a row ever differed by more than 5 % from the first, the same way."""
    return any(abs(move) > MOST_DRIFT for move in _moves(rates))


def _moves(rates: Sequence[tuple[int, float]]) -> list[float]:
    """Return the drift at each reference, a share: the smaller of two neighbours' changes in one direction, else 0."""
    seen = [rate / rates[0][1] - 1 for _, rate in rates]
    agreed = [0.0] * len(seen)
    for at, (one, other) in enumerate(itertools.pairwise(seen)):
        both = min(one, other, key=abs) if at and one * other > 0 else 0.0  # the first is where it did not move yet
        for place in (at, at + 1):
            agreed[place] = max(agreed[place], both, key=abs)
    return agreed


def describe_drift(judged: Sequence[Judged], baseline: Config) -> str:
    """Return a sentence on the drift at the latest reference; empty if the machine did not drift."""
    rates = baseline_rates(judged, baseline)
    change = _moves(rates)[-1] if rates and rates[-1][0] == judged[-1].trial.number else 0.0
    if abs(change) <= MOST_DRIFT:
        return ""
    return (
        f"The baseline is now {format_share(abs(change))} {'faster' if change > 0 else 'slower'} than at the start "
        f"(machine drift). Finalists are chosen by rates that are corrected for it."
    )
