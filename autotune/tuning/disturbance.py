"""What others did to a probe: which probes it spoiled, and which of two spoiled ones to believe."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.records import Config
from autotune.results import ProbeResult, Trial, Verdict
from autotune.units import format_share

# A power cap is how a large GPU normally runs: recorded, and no disturbance (measurement note C2).
HARMFUL = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake")
POWER_CAP = "power cap"
MOST_CLOCK_DRIFT = 0.03  # of the SM clock within a window; a steady card stays within it (note distributed 4)
BACK_OFF_SECONDS = 2.0  # before a repeat: a compilation or a backup takes longer, most bursts are over
MOST_VAIN_REPEATS = 3  # in a row: then others use the machine throughout, and repeating would only double the cost
FOUND = ("baseline", "search", "worth")  # the purposes whose probes a search learns from


def disturbances(result: ProbeResult) -> tuple[str, ...]:
    """Each thing that slowed the probe and was not of its making, in words; empty if nothing is known to have."""
    found = []
    contamination = result.measurement.contamination if result.measurement is not None else None
    if contamination is not None and contamination.contaminated:
        found.append(
            f"other processes kept {contamination.foreign_cores or 0:.1f} cores busy and it waited "
            f"{format_share(contamination.run_queue_wait_share or 0)} of its time for one"
        )
    gpu = result.gpu
    if gpu is None:
        return tuple(found)
    if gpu.foreign_processes:
        found.append(f"{len(gpu.foreign_processes)} other processes computed on its GPU")
    found += [reason for reason in gpu.throttle_reasons if reason in HARMFUL]
    low, high = gpu.sm_clock_mhz or (0, 0)
    if high - low > MOST_CLOCK_DRIFT * high and POWER_CAP not in gpu.throttle_reasons:
        found.append(f"the clock of its GPU moved between {low} and {high} MHz")
    return tuple(found)


def severity(result: ProbeResult) -> tuple[int, float]:
    """How much was wrong, for comparison: what befell the GPU, then how much longer steps took on the host."""
    contamination = result.measurement.contamination if result.measurement is not None else None
    slowdown = contamination.slowdown if contamination is not None else 1.0
    return len(disturbances(result)), slowdown


def standing(judged: Sequence[tuple[Trial, Verdict]]) -> list[tuple[Trial, Verdict]]:
    """The probes that count: without those whose configuration was probed again because others had disturbed it.

    The repeat counts; unless it was disturbed as well, and more than the first.
    """
    superseded = set()
    last: dict[Config, Trial] = {}
    for trial, _ in judged:
        if trial.purpose not in FOUND:
            continue
        before, kept = last.get(trial.config), trial
        if before is not None and disturbances(before.result):
            kept, lost = _kept(before, trial)
            superseded.add(lost.number)
        last[trial.config] = kept
    return [(trial, verdict) for trial, verdict in judged if trial.number not in superseded]


class Repeats:
    """Decides which probes to repeat. After so many repeats in a row that were disturbed as well, none any more."""

    def __init__(self) -> None:
        self._vain = 0

    @property
    def given_up(self) -> bool:
        """Whether the machine proved busy throughout."""
        return self._vain >= MOST_VAIN_REPEATS

    def wanted(self, trial: Trial) -> bool:
        """Whether this probe deserves another."""
        return trial.purpose in FOUND and not self.given_up and bool(disturbances(trial.result))

    def settle(self, first: Trial, repeat: Trial) -> Trial:
        """Take note of a repeat; the one of the two that counts."""
        self._vain = self._vain + 1 if disturbances(repeat.result) else 0
        return _kept(first, repeat)[0]


def _kept(first: Trial, repeat: Trial) -> tuple[Trial, Trial]:
    """Which of the two counts, and which does not."""
    if disturbances(repeat.result) and severity(first.result) <= severity(repeat.result):
        return first, repeat
    return repeat, first
