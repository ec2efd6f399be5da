"""The rounds of a race: each contestant runs once per round, in processes of their own, until it is decided.

    round 1   base A B
          2   B A base     every other round in reverse (ABBA), so that drift affects all alike
          3   base A B

As in the confirmation of a search, probes with interference are repeated or left out, and so are probes that were slow
for no known reason; contestants are compared by their ratios within rounds. No contestant drops out, because the user
asked for each of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from autotune.answer.confirmation_end import SURE_CONFIDENCE, SURE_ROUNDS
from autotune.answer.confirmation_rounds import FEWEST_ROUNDS, with_round
from autotune.answer.outliers import without_outliers
from autotune.context.probe_budgets import BRIEF
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome, Trial
from autotune.errors import EnvironmentUnfit, RaceFailed
from autotune.launch.base import LOG
from autotune.preparation.named_training import SettledTraining
from autotune.races.records import Ended, verdict_on
from autotune.study import disk
from autotune.study.history import History
from autotune.study.summary import ConfigSummary, rounds_of
from autotune.study.valid_probes import Judged, interference_causes
from autotune.tuning.probing import probe_request, with_repeat, with_retry
from autotune.units import format_rate


class RaceRun:
    """The contestants and all that was measured of them."""

    def __init__(
        self, contestants: Sequence[SettledTraining], folder: Path, *, tolerance: float,
        left_seconds: Callable[[], float], pause: Callable[[float], None], tell: Callable[[str], None],
        stops_early: bool = True,
    ) -> None:  # fmt: skip
        """`left_seconds` returns those of the budget, `tell` shows a sentence; `stops_early`: end once decided."""
        self._stops_early = stops_early
        self.contestants, self.folder, self._tolerance = contestants, folder, tolerance
        self._left_seconds, self._pause, self._tell = left_seconds, pause, tell
        self._histories = [History(one.request) for one in contestants]
        self._owners: dict[int, int] = {}  # of probes, by number
        self.summaries = [ConfigSummary(config=one.request.baseline) for one in contestants]

    @property
    def trials(self) -> list[Trial]:
        """All probes."""
        return [trial for history in self._histories for trial, _ in history.judged]

    def run_rounds(self, rounds: int | None) -> Ended:
        """Run at most `rounds` rounds (None: as time allows); return why there are no more.

        Raises `RaceFailed` if a contestant fails.
        """
        for number in itertools.count() if rounds is None else range(rounds):
            if number >= FEWEST_ROUNDS and not self._affords(len(self.contestants)):
                return "time"
            order = range(len(self.contestants))
            for at in order if number % 2 == 0 else reversed(order):
                self.summaries[at] = with_round(self.summaries[at], number, self._probed(at))
            self.summaries = without_outliers(self.summaries, self._again)
            self._tell_round(number)
            if number + 1 < FEWEST_ROUNDS and not self._affords(self._owed):
                self._tell(
                    f"The time budget is too short: {FEWEST_ROUNDS} rounds always run, or there is no interval. About "
                    f"{self._seconds(self._owed):.0f} s are still needed, {max(0.0, self._left_seconds()):.0f} s are "
                    f"left."
                )
            if self._stops_early and number + 1 >= SURE_ROUNDS and self._is_decided():
                return "decided"
        return "rounds"

    def _is_decided(self) -> bool:
        """Return whether there is a verdict on each contestant, and none that seems faster is still undecided."""
        rates = rounds_of(self.summaries, "rates", 0)
        rivals = len(self.summaries) - 1
        for at in range(1, rivals + 1):
            if rates.count(at, 0) < SURE_ROUNDS:
                return False
            ratio, low, high = rates.ratio(at, 0, 1 - (1 - SURE_CONFIDENCE) / rivals)  # Bonferroni's correction
            verdict = verdict_on(ratio, low, high, self._tolerance)
            if verdict == "undecided" or (verdict == "as fast" and ratio > 1 + self._tolerance):
                return False
        return True

    def _probed(self, at: int) -> Judged:
        """Return the probe that counts for this round. Raises `RaceFailed`."""
        probe, tell = self._probe, self._tell
        first = with_retry(lambda: probe(at), tell)
        if not self._histories[at].is_busy:
            first = with_repeat(
                first, lambda number: with_retry(lambda: probe(at, number), tell),
                has_time=lambda: self._affords(1 + self._owed), detail=tell, pause=self._pause,
            )  # fmt: skip
        trial, verdict = first
        if trial.result.measurement is None:  # a probe short of memory is slow, and that is what the race asks
            raise RaceFailed(
                f"{self.contestants[at].label} failed in probe {trial.number}: {verdict.why.removesuffix('.')}. The "
                f"others cannot be compared with it, so the race ends. Correct it, or leave it out.\nFull log: "
                f"{disk.log_of(self.folder, trial.number)}",
                traceback=trial.result.failure.traceback if trial.result.failure else "",
            )
        return first

    def _again(self, trial: Trial) -> Judged | None:
        """Measure a probe again that was slow for no known reason; return None if there is no time."""
        if not self._affords(1 + self._owed):
            return None
        self._tell(f"Probe {trial.number} was far slower than the other rounds of its contestant. Trying once more.")
        at = self._owners[trial.number]
        again = with_retry(lambda: self._probe(at, trial.number), self._tell)
        return again if again.trial.result.measurement is not None else None

    def _probe(self, at: int, repeats: int | None = None) -> Judged:
        """Run one probe of a contestant and judge it. `repeats` is the number of the probe that it repeats."""
        one, (number, place) = self.contestants[at], disk.new_attempt(self.folder, ProbeRequest)
        asked = probe_request(one.request, one.request.baseline, number, "confirm", BRIEF, repeats=repeats)
        result = one.launcher.run(asked, place)
        if result.outcome is Outcome.ENVIRONMENT:
            assert result.failure is not None, "only OK has none"
            raise EnvironmentUnfit(f"{one.label}: {result.failure.message}\nFull log: {place / LOG}")
        trial = Trial(
            number=number, purpose="confirm", config=asked.config, result=result, repeats=repeats, seed=asked.seed
        )
        self._owners[number] = at
        return self._histories[at].add(trial)

    @property
    def _owed(self) -> int:
        """How many probes are still needed for the running round and for the fewest rounds."""
        contestants, begun = len(self.contestants), sum(trial.repeats is None for trial in self.trials)
        return max(FEWEST_ROUNDS, math.ceil(begun / contestants)) * contestants - begun

    def _affords(self, probes: int) -> bool:
        """Return whether there is time for so many more probes."""
        return self._seconds(probes) <= self._left_seconds()

    def _seconds(self, probes: int) -> float:
        """Return the seconds of so many more probes, if each takes as long as the earlier ones on average."""
        ran = [trial.result.elapsed_seconds for trial in self.trials]
        return probes * sum(ran) / len(ran)

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
