"""The run-off at the end of a search: who races, for how long, and who moves up when all of them fail."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from autotune.knobs import KNOBS
from autotune.records import Config, StudyRequest
from autotune.tuning import confirm, drift, race
from autotune.tuning.confirm import Candidate
from autotune.tuning.disturbance import standing
from autotune.tuning.numerics import Judged, Numerics
from autotune.tuning.prober import Prober
from autotune.tuning.reporter import Reporter
from autotune.units import format_seconds

MOST_RACES = 3  # while nothing holds at all: then memory or the machine is at its edge, and more would not help


class RunOff:
    """The confirmation of one search. `left_seconds` tells what is left of its time budget."""

    def __init__(
        self, request: StudyRequest, prober: Prober, numerics: Numerics, reporter: Reporter,
        left_seconds: Callable[[], float],
    ) -> None:  # fmt: skip
        self._request, self._prober, self._numerics = request, prober, numerics
        self._reporter, self._left_seconds = reporter, left_seconds

    @property
    def _probe_seconds(self) -> float:
        """Of one probe of the race: the median of those so far, before the first that of all probes."""
        ran = [
            t.result.elapsed_seconds for t, _ in self._prober.judged if t.purpose == "confirm" and t.result.measurement
        ]
        return statistics.median(ran) if ran else self._prober.typical_seconds

    @property
    def shortest_seconds(self) -> float:
        """Of the least that a confirmation may be: three leaders and the baseline, two rounds."""
        return self._probe_seconds * race.probes(race.FEWEST_LEADERS, race.FEWEST_ROUNDS, 1)

    def wanted_seconds(self) -> float:
        """Of a race of eight rounds among those who would begin it now."""
        judged = self._judged()
        free = self._request.goal.global_batch is None
        leaders = confirm.leaders(
            judged, free=free, goal=self._request.goal, most=race.MOST_LEADERS, margin=self._margin()
        )
        return self._probe_seconds * race.probes(len(leaders), race.GOAL_ROUNDS, 1)

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
            if number:
                self._tell_failures(raced)
            self._race([*leaders, *(candidate for candidate in baseline if not candidate.lost)])
            raced += leaders
            holding = [c for c in (*leaders, *baseline) if not c.lost]
            if any(c in holding for c in leaders) or (holding and self._left_seconds() < self.shortest_seconds):
                break
        return [*raced, *baseline, *self._numerics.refused(self._judged())] if raced or baseline else []

    def _leaders(self) -> list[Candidate]:
        """As many as there is time for; comparing their losses takes some of it."""
        judged, margin = self._judged(), self._margin()
        chosen = self._numerics.leaders(judged, self._plan(race.MOST_LEADERS).leaders, margin)
        affordable = self._plan(len(chosen)).leaders
        return chosen if len(chosen) <= affordable else self._numerics.leaders(judged, affordable, margin)

    def _baseline(self) -> list[Candidate]:
        config = self._request.baseline
        if not any(trial.config == config and verdict.feasible for trial, verdict in self._prober.judged):
            return []
        return [Candidate(config=config, found=None, refused=self._numerics.refusal(config))]

    def _race(self, candidates: list[Candidate]) -> None:
        """Tell the plan in a line and carry it out."""
        config, goal = self._request.baseline, self._request.goal
        leading = sum(candidate.config != config for candidate in candidates)
        others = len(candidates) - leading
        rounds = self._plan(leading, others).rounds
        seconds = race.probes(leading, rounds, others) * self._probe_seconds
        over = seconds - self._left_seconds()
        late = f" This takes about {format_seconds(over)} more than the time budget." if over > 0 else ""
        self._reporter.note(f"{_planned(leading, others, rounds)}, {format_seconds(seconds)} at most.{late}")
        confirm.run(
            candidates,
            rounds,
            lambda one: self._prober.twice(one, "confirm"),
            baseline=config,
            goal=goal,
            affords=lambda probes: self._left_seconds() >= probes * self._probe_seconds,
        )

    def _plan(self, available: int, others: int = 1) -> race.Plan:
        return race.plan(available, others, self._left_seconds() / self._probe_seconds)

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
