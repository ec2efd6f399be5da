"""The rounds of a race: each contestant runs once per round, in processes of their own, until it is decided.

    round 1   base A B
          2   B A base     every other round in reverse (ABBA), so that drift affects all alike
          3   base A B

As in the confirmation of a search, probes with interference are repeated or left out, and so are probes that were slow
for no known reason; contestants are compared by their ratios within rounds. No contestant drops out, because the user
asked for each of them; but where they may, those that fail leave, and the slowest while time is too short for the
fewest rounds of all.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from autotune.answer.confirmation_end import SURE_CONFIDENCE, SURE_ROUNDS
from autotune.answer.confirmation_rounds import FEWEST_ROUNDS, with_round
from autotune.answer.crowded_out import is_beyond_load, is_crowded_out
from autotune.answer.outliers import without_outliers
from autotune.context.probe_budgets import BRIEF
from autotune.context.time_shares import TimeShares
from autotune.core.records import Config
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome, Trial
from autotune.errors import EnvironmentUnfit, RaceFailed
from autotune.launch.base import LOG
from autotune.preparation.named_training import SettledTraining
from autotune.preparation.short_budget import first_probe_seconds
from autotune.races.records import StopReason, verdict_on
from autotune.sentences import first_few
from autotune.study import disk
from autotune.study.history import History
from autotune.study.summary import ConfigSummary, rounds_of
from autotune.study.valid_probes import BACK_OFF_SECONDS, Judged, interference_causes
from autotune.targets.commands.command import is_command
from autotune.tuning.probing import probe_request, with_repeat, with_retry
from autotune.units import format_rate, format_seconds

MOST_NAMED_CONTESTANTS = 3  # contestants in a sentence


class RaceRun:
    """The contestants and all that was measured of them."""

    def __init__(
        self, contestants: Sequence[SettledTraining], folder: Path, *, tolerance: float, time: TimeShares,
        pause: Callable[[float], None], tell: Callable[[str], None], stops_early: bool = True, may_leave: bool = False,
        known_seconds: Callable[[Config], float] | None = None,
    ) -> None:  # fmt: skip
        """`tell` shows a sentence; `stops_early`: end once decided; `may_leave`: see `RaceSettings`.

        `known_seconds` returns those of a probe of a configuration as measured before the race; None: nothing was.
        """
        self._stops_early, self._may_leave = stops_early, may_leave
        self.contestants, self.folder, self._tolerance = contestants, folder, tolerance
        self._time, self._pause, self._tell = time, pause, tell
        self._histories = [History(one.request) for one in contestants]
        guesses = [first_probe_seconds(one.request, one.inspection_seconds, BRIEF) for one in contestants]
        configs = [one.request.baseline for one in contestants]
        self._known = (
            guesses if known_seconds is None else list(map(known_seconds, configs))
        )  # seconds of a first probe
        self._owners: dict[int, int] = {}  # of probes, by number
        self._summaries = [ConfigSummary(config=one.request.baseline) for one in contestants]
        self.running = list(range(len(contestants)))  # those that have not left
        self._is_overrun = False  # by the fewest rounds, and told

    @property
    def summaries(self) -> list[ConfigSummary]:
        """What was measured of each that has not left, in their order."""
        return [self._summaries[at] for at in self.running]

    @property
    def trials(self) -> list[Trial]:
        """All probes."""
        return [trial for history in self._histories for trial, _ in history.judged]

    def run_rounds(self, rounds: int | None) -> StopReason:
        """Run at most `rounds` rounds (None: as time allows); return why there are no more.

        Raises `RaceFailed` if a contestant fails.
        """
        self._tell_overrun()
        for number in itertools.count() if rounds is None else range(rounds):
            if number >= FEWEST_ROUNDS and sum(map(self._expected, self.running)) > self._time.left_seconds:
                return "time"
            for at in self.running[:: 1 if number % 2 == 0 else -1]:
                self._dismiss()
                is_compared = at in self.running and len(self.running) > 1
                if is_compared and (judged := self._probed(at)) is not None:
                    self._summaries[at] = with_round(self._summaries[at], number, judged)
                    if number + 1 < FEWEST_ROUNDS:
                        self._tell_overrun()
            if len(self.running) < 2:
                return "time"
            for at, one in zip(self.running, without_outliers(self.summaries, self._again), strict=True):
                self._summaries[at] = one
            self._tell_round(number)
            if self._stops_early and number + 1 >= SURE_ROUNDS and self._is_decided():
                return "decided"
        return "rounds"

    def _tell_overrun(self) -> None:
        """Say, once, that the fewest rounds take longer than there is time."""
        if self._is_overrun or self._may_leave or self._affords():
            return
        self._is_overrun = True
        needed, left = sum(map(self._owed, self.running)), max(0.0, self._time.left_seconds)
        is_least = any(is_command(one.request.target) for one in self.contestants) and not self.trials
        self._tell(
            f"The time budget of {format_seconds(self._time.seconds)} is too short: {FEWEST_ROUNDS} rounds of all "
            f"contestants always run, or there is no interval. That takes {'at least' if is_least else 'about'} "
            f"{format_seconds(needed)} more, and {format_seconds(left)} are left. Use --time-budget "
            f"{math.ceil((self._time.elapsed_seconds + needed) / 60)}m or more to have them in time."
        )

    def _dismiss(self) -> None:
        """Let contestants leave while there is no time for the fewest rounds of all, if they may: the slowest first."""
        gone, left = list[int](), self._time.left_seconds + self._time.late_seconds
        while self._may_leave and len(self.running) > 1 and sum(map(self._owed, self.running)) > left:
            gone.append(max(self.running[1:], key=lambda one: (self._owed(one), one)))
            self.running.remove(gone[-1])
        if gone:
            names = first_few([self.contestants[at].label for at in sorted(gone)], MOST_NAMED_CONTESTANTS)
            longest = format_seconds(max(map(self._expected, gone)))
            self._tell(
                f"There is no time for {FEWEST_ROUNDS} rounds of {names}: a probe takes up to {longest} now, and "
                f"{format_seconds(max(0.0, left))} are left. What was not begun is left out."
            )

    def _is_decided(self) -> bool:
        """Return whether there is a verdict on each contestant, and none that seems faster is still undecided."""
        rates = rounds_of(self.summaries, "rates", 0)
        rivals = len(self.summaries) - 1
        for at in range(1, rivals + 1):
            if rates.count(at, 0) < SURE_ROUNDS or self.is_beside_others(at):
                return False
            ratio, low, high = rates.ratio(at, 0, 1 - (1 - SURE_CONFIDENCE) / rivals)  # Bonferroni's correction
            verdict = verdict_on(ratio, low, high, self._tolerance)
            if verdict == "undecided" or (verdict == "as fast" and ratio > 1 + self._tolerance):
                return False
        return True

    def is_beside_others(self, place: int) -> bool:
        """Return whether others kept this one of `summaries`, or the baseline, from the cores in too many rounds.

        False all the same if one is faster than the other by more than others can have cost the other.
        """
        request, rates = self.contestants[0].request, rounds_of(self.summaries, "rates", 0)
        _, low, high = rates.ratio(place, 0, SURE_CONFIDENCE) if rates.count(place, 0) > 1 else (1.0, 0.0, math.inf)
        if is_beyond_load(low, self.summaries[0]) or is_beyond_load(1 / high, self.summaries[place]):
            return False
        return any(is_crowded_out(self.summaries[at], request) for at in (0, place))

    def _probed(self, at: int) -> Judged | None:
        """Return the probe that counts for this round; None: it failed, and it left. Raises `RaceFailed`."""
        probe, tell = self._probe, self._tell
        first = with_retry(lambda: probe(at), tell)
        if not self._histories[at].is_busy:
            first = with_repeat(
                first, lambda number: with_retry(lambda: probe(at, number), tell),
                has_time=lambda: self._affords(at), detail=tell, pause=self._pause,
            )  # fmt: skip
        trial, verdict = first
        if trial.result.measurement is None:  # a probe short of memory is slow, and that is what the race asks
            failed = f"{self.contestants[at].label} failed in probe {trial.number}: {verdict.why.removesuffix('.')}."
            log = f"\nFull log: {disk.log_of(self.folder, trial.number)}"
            if self._may_leave and at:
                self._tell(f"{failed} It is left out.{log}")
                self.running.remove(at)
                return None
            raise RaceFailed(
                f"{failed} The others cannot be compared with it, so the race ends. Correct it, or leave it out.{log}",
                traceback=trial.result.failure.traceback if trial.result.failure else "",
            )
        return first

    def _again(self, trial: Trial) -> Judged | None:
        """Measure a probe again that was slow for no known reason; return None if there is no time."""
        at = self._owners[trial.number]
        if not self._affords(at):
            return None
        self._tell(f"Probe {trial.number} was far slower than the other rounds of its contestant. Trying once more.")
        again = with_retry(lambda: self._probe(at, trial.number), self._tell)
        return again if again.trial.result.measurement is not None else None

    def _probe(self, at: int, repeats: int | None = None) -> Judged:
        """Run one probe of a contestant and judge it. `repeats` is the number of the probe that it repeats."""
        one, (number, place) = self.contestants[at], disk.new_attempt(self.folder, ProbeRequest)
        budget = replace(BRIEF, total_deadline_seconds=self._deadline(at)) if self._may_leave else BRIEF
        asked = probe_request(one.request, one.request.baseline, number, "confirm", budget, repeats=repeats)
        result = one.launcher.run(asked, place)
        if result.outcome is Outcome.ENVIRONMENT:
            assert result.failure is not None, "only OK has none"
            raise EnvironmentUnfit(f"{one.label}: {result.failure.message}\nFull log: {place / LOG}")
        trial = Trial(
            number=number, purpose="confirm", config=asked.config, result=result, repeats=repeats, seed=asked.seed
        )
        self._owners[number] = at
        return self._histories[at].add(trial)

    def _deadline(self, at: int) -> float:
        """Return the seconds that a probe of `at` may take, so that the others have time for the fewest rounds."""
        others = sum(self._owed(one) for one in self.running if one != at) if at else 0.0
        left = self._time.left_seconds + self._time.late_seconds - others
        return min(BRIEF.total_deadline_seconds, max(1.0, round(left, 1)))

    def _affords(self, again: int | None = None) -> bool:
        """Return whether there is time for all probes still needed, and for one more of `again`."""
        more = 0.0 if again is None else BACK_OFF_SECONDS + self._expected(again)
        return more + sum(map(self._owed, self.running)) <= self._time.left_seconds

    def _owed(self, at: int) -> float:
        """Return the seconds of its probes that the running round and the fewest rounds still need."""
        begun = [sum(trial.repeats is None for trial, _ in self._histories[one].judged) for one in self.running]
        own = begun[self.running.index(at)]
        return (max(FEWEST_ROUNDS, *begun) - own) * self._expected(at)

    def _expected(self, at: int) -> float:
        """Return the seconds of its next probe: as its own, else as known before, by as much longer as others took."""
        own = self._seconds_now(at)
        if own is not None:
            return own
        now = [
            (self._known[one], seconds) for one in range(len(self.contestants)) if (seconds := self._seconds_now(one))
        ]
        return self._known[at] * statistics.fmean([seconds / known for known, seconds in now] or [1.0])

    def _seconds_now(self, at: int) -> float | None:
        """Return the seconds of its next probe by its own probes in this race; None: there is none."""
        history, config = self._histories[at], self.contestants[at].request.baseline
        has_run = any(trial.result.measurement for trial, _ in history.judged)
        return history.times.expected_seconds(BRIEF, config) if has_run else None

    def _tell_round(self, number: int) -> None:
        rates = [
            format_rate(one.trials[-1].result.measurement.samples_per_second)
            if one.rounds[-1:] == (number,) and one.trials[-1].result.measurement
            else "–"
            for one in self.summaries
        ]
        self._tell(f"Round {number + 1}: {' · '.join(rates)} samples/s")

    def confidence(self) -> float:
        """Return the confidence of each interval, so that all hold together with 95 % (Bonferroni's correction)."""
        return 1 - 0.05 / (len(self.summaries) - 1)

    @property
    def with_interference(self) -> int:
        """The number of probes with interference."""
        return sum(bool(interference_causes(trial.result)) for trial in self.trials)
