"""The run-off at the end of a search: who races, for how long, and who moves up when all of them fail."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from autotune.knobs import KNOBS
from autotune.objectives import objective_of
from autotune.records import Config, StudyRequest
from autotune.requests import ProbeBudget
from autotune.tuning import confirm, drift, race
from autotune.tuning.broken_off import BrokenOff
from autotune.tuning.confirm import Candidate
from autotune.tuning.disturbance import standing
from autotune.tuning.numerics import Judged, Numerics
from autotune.tuning.prober import BRIEF, Prober
from autotune.tuning.reporter import Reporter
from autotune.units import format_seconds

MOST_RACES = 3  # while nothing holds at all: then memory or the machine is at its edge, and more would not help


class RunOff:
    """The confirmation of one search. `left_seconds` tells what is left of its time budget."""

    def __init__(
        self, request: StudyRequest, prober: Prober, numerics: Numerics, reporter: Reporter,
        left_seconds: Callable[[], float], broken_off: BrokenOff | None = None, excluded: str = "",
    ) -> None:  # fmt: skip
        """`broken_off`: whole rounds of it are not run again. `excluded`: why the space leaves the baseline out."""
        self._request, self._prober, self._numerics = request, prober, numerics
        self._reporter, self._left_seconds, self._is_over = reporter, left_seconds, False
        self._broken_off = broken_off or BrokenOff()
        self._repeats, self._has_repeated, self._excluded = 0, False, excluded

    def shortest_seconds(self) -> float:
        """Of the least that a confirmation may be: three leaders and the baseline, two rounds, measured briefly."""
        racing = self._racing(race.FEWEST_LEADERS)
        return self._probe_seconds(racing, self._brief) * race.probes(race.FEWEST_LEADERS, race.FEWEST_ROUNDS, 1)

    def spare_seconds(self) -> float:
        """Of the time budget, what the shortest confirmation does not need; once there was one, all that is left."""
        return self._left_seconds() - (0.0 if self._is_over else self.shortest_seconds())

    def wanted_seconds(self) -> float:
        """Of a race of eight rounds among those who would begin it now."""
        racing = self._racing(race.MOST_LEADERS)
        return self._probe_seconds(racing, self._window) * race.probes(len(racing) - 1, race.GOAL_ROUNDS, 1)

    def run(self) -> list[Candidate]:
        """Every candidate that was raced, the baseline if it runs, and one of each refused arithmetic.

        Nobody, if no probe was usable. If all leaders fail, the next ones of the search are raced, as far as time
        allows; while nothing has held, over the budget too.
        """
        raced: list[Candidate] = []
        baseline: list[Candidate] = []
        for number in range(MOST_RACES):
            leaders = [c for c in self._leaders() if c.config != self._request.baseline]
            baseline = baseline or self._baseline()  # after the leaders: whether it is refused is known then
            if not leaders and (number or not baseline):
                break
            if not leaders and not self._has_time_alone():
                self._take_as_probed(baseline[0])
                break
            if number:
                self._tell_failures(raced)
            self._race([*leaders, *(candidate for candidate in baseline if not candidate.lost)])
            raced += leaders
            holding = [c for c in (*leaders, *baseline) if not c.lost]
            if any(c in holding for c in leaders) or (holding and self.spare_seconds() < 0):
                break
        self._is_over = True
        return [*raced, *baseline, *self._numerics.refused(self._judged())] if raced or baseline else []

    def _leaders(self) -> list[Candidate]:
        """As many as there is time for; comparing their losses takes some of it. Those of a race that goes on."""
        judged, margin = self._judged(), self._margin()
        before = self._broken_off.leaders
        if before and not any(map(self._numerics.refusal, before)):
            return [Candidate(config=config, found=self._prober.found(config)) for config in before]
        seconds = self._probe_seconds(self._racing(race.MOST_LEADERS), self._window)
        chosen = self._numerics.leaders(judged, self._plan(race.MOST_LEADERS, seconds).leaders, margin)
        affordable = self._plan(len(chosen), seconds).leaders
        return chosen if len(chosen) <= affordable else self._numerics.leaders(judged, affordable, margin)

    def _baseline(self) -> list[Candidate]:
        config = self._request.baseline
        if not any(trial.config == config and verdict.feasible for trial, verdict in self._prober.judged):
            return []
        refused = self._excluded and f"measured for comparison only: {self._excluded}"
        return [Candidate(config=config, found=None, refused=refused or self._numerics.refusal(config))]

    def _has_time_alone(self) -> bool:
        """Whether the baseline can be measured again when there is nobody to race it."""
        alone = [self._request.baseline]
        return self._left_seconds() >= race.fewest_rounds(1) * self._probe_seconds(alone, self._brief)

    def _take_as_probed(self, baseline: Candidate) -> None:
        """Its latest probe is its only round: there is nothing to compare it with, and no time for more."""
        ran = [pair for pair in self._prober.judged if pair[0].config == baseline.config and pair[1].feasible]
        baseline.trials.append(ran[-1][0])
        baseline.verdicts.append(ran[-1][1])
        self._reporter.note("Only the baseline ran, and there is no time to confirm it: its latest probe stands.")

    def _race(self, candidates: list[Candidate]) -> None:
        """Tell the plan in a line and carry it out."""
        leading = sum(candidate.config != self._request.baseline for candidate in candidates)
        others = len(candidates) - leading
        racing, window = [candidate.config for candidate in candidates], self._window
        known = len(self._broken_off)
        least = race.probes(leading, race.fewest_rounds(len(racing)), others) - known
        if least * self._probe_seconds(racing, window) > self._left_seconds():
            window = self._brief
        probe_seconds = self._probe_seconds(racing, window)
        rounds = race.plan(leading, others, known + self._left_seconds() / probe_seconds).rounds
        seconds = max(0, race.probes(leading, rounds, others) - known) * probe_seconds
        briefly = ", measured briefly" if window != self._window else ""
        self._repeats = len(racing) + int(max(0.0, self._left_seconds() / probe_seconds - max(0, least)))
        over = seconds - self._left_seconds()
        late = f" This takes about {format_seconds(over)} more than the time budget." if over > 0 else ""
        self._reporter.note(f"{_planned(leading, others, rounds)}{briefly}, {format_seconds(seconds)} at most.{late}")
        confirm.run(
            candidates,
            rounds,
            lambda one: self._prober.in_peace(one, "confirm", window=window, has_time=self._take_repeat),
            self._request,
            affords=lambda running: (
                self._left_seconds() >= sum(self._prober.expected_seconds(window, one) for one in running)
            ),
            broken_off=self._broken_off,
        )
        late_by = -self._left_seconds()
        if late_by > max(over, 0.0) and self._has_repeated:
            self._reporter.note(
                f"Because of repeats the confirmation ended {format_seconds(late_by)} after the time budget."
            )

    def _take_repeat(self) -> bool:
        """Count one more repeat, and whether it is made: beyond the time budget as many as a round has at most."""
        self._repeats -= 1
        self._has_repeated = self._has_repeated or self._repeats >= 0
        return self._repeats >= 0

    @property
    def _window(self) -> ProbeBudget:
        return objective_of(self._request.goal).window

    @property
    def _brief(self) -> ProbeBudget:
        """The window for want of time: no other where something else than speed is measured."""
        return BRIEF if objective_of(self._request.goal).is_speed else self._window

    def _probe_seconds(self, racing: Sequence[Config], window: ProbeBudget) -> float:
        """Of one probe of a race among these, in the mean: it is multiplied."""
        return statistics.fmean(self._prober.expected_seconds(window, config) for config in racing)

    def _racing(self, most: int) -> list[Config]:
        """Who would race now: the baseline, and at most so many leaders."""
        leaders = confirm.leaders(self._judged(), self._request, most=most, margin=self._margin())
        return [*(candidate.config for candidate in leaders), self._request.baseline]

    def _plan(self, available: int, probe_seconds: float) -> race.Plan:
        return race.plan(available, 1, self._left_seconds() / probe_seconds)

    def _judged(self) -> Judged:
        return drift.corrected(standing(self._prober.judged), self._request.baseline)

    def _margin(self) -> float:
        references = drift.references(self._prober.judged, self._request.baseline)
        return race.margin([rate for _, rate in references])

    def _tell_failures(self, raced: list[Candidate]) -> None:
        reasons = "; ".join(f"{_words(candidate.config)}: {candidate.lost}" for candidate in raced if candidate.lost)
        self._reporter.note(f"None of the leaders held when it was measured again ({reasons}). The next ones follow.")


def _planned(leading: int, others: int, rounds: int) -> str:
    """`Confirming 9 configurations in up to 12 interleaved rounds of fresh processes, the slower half ...`."""
    most = "up to " if rounds > race.SURE_ROUNDS else ""
    halved = [
        str(after)
        for after in race.HALVED_AFTER
        if after < rounds and race.size(leading, after) < race.size(leading, after - 1)
    ]
    left = f", the slower half left behind after {' and '.join(halved)}" if halved else ""
    count = leading + others
    who = f"{count} configuration{'' if count == 1 else 's'}"
    return f"Confirming {who} in {most}{rounds} interleaved rounds of fresh processes{left}"


def _words(config: Config) -> str:
    return " ".join(knob.show(config[knob.name]) for knob in KNOBS)
