"""What others did to a probe: which probes it spoiled, and which of two spoiled ones to believe."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.interference import MOST_WAIT_SHARE, GpuUse
from autotune.records import Config
from autotune.results import ProbeResult, Trial, Verdict
from autotune.units import format_share

# A power cap is how a large GPU normally runs: recorded, and no disturbance (docs/notes/timing.md 2).
HARMFUL = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake")
POWER_CAP = "power cap"
MOST_CLOCK_DRIFT = 0.03  # of the SM clock within a window; a steady card stays within it (docs/notes/gpu.md 2)
LEAST_UTILIZATION = 0.9  # from which on the clock is not the probe's own doing: a card that rests lowers it by itself
MOST_FOREIGN_SHARE = MOST_WAIT_SHARE  # of a card's time: a kernel of others keeps ours waiting for as long
BACK_OFF_SECONDS = 2.0  # before a repeat: a compilation or a backup takes longer, most bursts are over
MOST_VAIN_REPEATS = 3  # in a row: then others use the machine throughout, and repeating would only double the cost
FOUND = ("baseline", "search", "worth")  # the purposes whose probes a search learns from
REPEATED = (*FOUND, "confirm")  # and those whose probes are repeated; a reference comes again of itself
MOST_SLOWDOWN = 1.1  # by others, of a probe that counts if need be: gains that are worth a change are of this size


def disturbances(result: ProbeResult) -> tuple[str, ...]:
    """Each thing that slowed the probe and was not of its making, in words; empty if nothing is known to have."""
    found = []
    contamination = result.measurement.contamination if result.measurement is not None else None
    if contamination is not None and contamination.contaminated:
        found.append(
            f"other processes kept {contamination.foreign_cores or 0:.1f} cores busy and it waited "
            f"{format_share(contamination.run_queue_wait_share or 0)} of its time for one"
        )
    return tuple(found) if result.gpu is None else (*found, *_on_the_card(result.gpu))


def _on_the_card(gpu: GpuUse) -> list[str]:
    """Nobody is blamed for what the card does not tell, nor for a context that computes nothing."""
    found = [reason for reason in gpu.throttle_reasons if reason in HARMFUL]
    if (gpu.foreign_share or 0) > MOST_FOREIGN_SHARE:
        found.append(f"other processes took {format_share(gpu.foreign_share or 0)} of its GPU's time")
    low, high = gpu.sm_clock_mhz or (0, 0)
    steady = high - low <= MOST_CLOCK_DRIFT * high or POWER_CAP in gpu.throttle_reasons
    if not steady and (gpu.utilization or 0) >= LEAST_UTILIZATION:
        found.append(f"the clock of its GPU moved between {low} and {high} MHz")
    return found


def is_spoiled(result: ProbeResult) -> bool:
    """Whether others slowed the probe by more than 10 %, or by nobody knows how much, as on its GPU."""
    contamination = result.measurement.contamination if result.measurement is not None else None
    found = len(disturbances(result))
    if contamination is None or not contamination.contaminated:
        return found > 0
    return found > 1 or contamination.slowdown > MOST_SLOWDOWN


def severity(result: ProbeResult) -> tuple[int, float]:
    """How much was wrong, for comparison: what befell the GPU, then how much longer steps took on the host."""
    contamination = result.measurement.contamination if result.measurement is not None else None
    slowdown = contamination.slowdown if contamination is not None else 1.0
    return len(disturbances(result)), slowdown


def standing(judged: Sequence[tuple[Trial, Verdict]]) -> list[tuple[Trial, Verdict]]:
    """The probes that count: without those whose configuration was probed again because others had disturbed it.

    The repeat counts; unless it was disturbed as well, and more than the first. Whatever the reason was to measure the
    baseline again, one of its probes counts.
    """
    superseded = set()
    last: dict[Config | int, Trial] = {}  # of a round by number: the next round probes the same configuration
    for trial, _ in judged:
        if trial.purpose not in REPEATED:
            continue
        place = trial.config if trial.purpose in FOUND else _first(trial)
        before, kept = last.get(place), trial
        if before is not None and _is_repeat(trial, before):
            kept, lost = _kept(before, trial)
            superseded.add(lost.number)
        last[place] = kept
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
        return trial.purpose in REPEATED and not self.given_up and bool(disturbances(trial.result))

    def settle(self, first: Trial, repeat: Trial) -> Trial:
        """Take note of a repeat; the one of the two that counts."""
        self._vain = self._vain + 1 if disturbances(repeat.result) else 0
        return _kept(first, repeat)[0]


def _first(trial: Trial) -> int:
    """The number of the probe that it repeats, or its own."""
    return trial.number if trial.repeats is None else trial.repeats


def _is_repeat(trial: Trial, before: Trial) -> bool:
    """Whether a probe takes the place of an earlier one of its configuration, or the other way round."""
    again = trial.purpose == before.purpose == "baseline" and before.result.measurement is not None
    return again or bool(disturbances(before.result))


def _kept(first: Trial, repeat: Trial) -> tuple[Trial, Trial]:
    """Which of the two counts, and which does not."""
    if disturbances(repeat.result) and severity(first.result) <= severity(repeat.result):
        return first, repeat
    return repeat, first
