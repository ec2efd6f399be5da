"""The time budget of one search: what is left of it, and what has to be kept for which later stage.

    │ elapsed │ spare                     │ the shortest confirmation │      spare: what may be spent now
    │ elapsed │ to search with    │ what the confirmation wants       │      reserve: what the search keeps

decisions/0033 has the rules.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence

from autotune.core.records import Config
from autotune.core.requests import ProbeBudget
from autotune.core.results import Outcome, ProbeResult
from autotune.knobs import KNOBS
from autotune.objectives import objective_of
from autotune.sampler.space import changes
from autotune.study.history import History
from autotune.study.interference import Judged
from autotune.tuning import choice, racing

# A search probe tells configurations apart, which differ by tens of per cent: recorded windows ended by this rule take
# half as long, and nine of ten rates are off by 1.6 % at most (benchmarks/probe_length.py). All others are measured for
# their own sake.
SEARCH = ProbeBudget(min_seconds=0.75)
# Of a confirmation for which the budget is too short otherwise: the noise is between probes (docs/notes/timing.md 2).
BRIEF = ProbeBudget(min_seconds=0.75, max_seconds=2.0, target_precision=0.05)
MOST_RESERVED = 0.4  # share of the budget kept for the confirmation; of a short one more, once three could be confirmed
# With a free global batch who is within 5 % need not be told apart: rather more finalists than eight rounds.
KNEE_FINALISTS = 5
KNEE_PROBES = racing.probes(KNEE_FINALISTS, racing.SURE_ROUNDS, 1)
MOST_ELIMINATION = 0.33  # share of the budget kept to take changes back
STEPS = 50  # of a first comparison of losses (docs/notes/precision.md 3)
SEED_SECONDS = 60.0  # at most, for so many steps of the three runs of one seed
RUNS = 3  # of one seed: full precision, the same perturbed, the candidate
RUNS_SLOWER = 1.5  # than the fastest probe: two of them are in full precision (6.2 s for 4.1 s, digits_cnn, Xeon)


class TimeBudget:
    """The time budget of one run: answers every question of time, from the history, a clock and the user's seconds."""

    def __init__(self, history: History, seconds: float, clock: Callable[[], float], began: float) -> None:
        """The search `began` at that moment of `clock`."""
        self._history, self._clock, self._began = history, clock, began
        self.seconds, self._objective = seconds, objective_of(history.request.goal)
        self._probes_after = self._objective.probes_after(history.request.goal)

    @property
    def elapsed_seconds(self) -> float:
        """The seconds that this run has taken so far."""
        return self._clock() - self._began

    @property
    def left_seconds(self) -> float:
        """The seconds left for search and confirmation; below 0 once the budget is overrun."""
        return self.seconds - self.elapsed_seconds

    @property
    def spare_seconds(self) -> float:
        """The seconds left that the shortest confirmation does not need."""
        return self.left_seconds - self.shortest_seconds

    @property
    def window(self) -> ProbeBudget:
        """The window of a probe of the confirmation."""
        return self._objective.window

    @property
    def brief_window(self) -> ProbeBudget:
        """The window where time is short: no shorter where something else than speed is measured."""
        return BRIEF if self._objective.is_speed else self.window

    @property
    def shortest_seconds(self) -> float:
        """The seconds of the shortest confirmation: three finalists and the baseline, two rounds, measured briefly."""
        racers = self._racers(choice.FEWEST_FINALISTS)
        probes = racing.probes(choice.FEWEST_FINALISTS, racing.FEWEST_ROUNDS, 1)
        return self.probe_seconds(racers, self.brief_window) * probes

    @property
    def wanted_seconds(self) -> float:
        """The seconds of a race of eight rounds among those who would begin it now."""
        racers = self._racers(racing.MOST_FINALISTS)
        return self.probe_seconds(racers, self.window) * racing.probes(len(racers) - 1, racing.GOAL_ROUNDS, 1)

    @property
    def reserve_seconds(self) -> float:
        """The seconds kept for the race, the comparison of losses, and what the objective probes after the search.

        Nothing while there is nothing to confirm: a search that tried only the baseline has no answer to keep time for.
        """
        if self.missing_finalists == choice.FEWEST_FINALISTS:
            return 0.0
        others = self.comparison_seconds + self.elimination_seconds + self._history.typical_seconds * self._probes_after
        most = MOST_RESERVED * self.seconds
        if self.missing_finalists == 0:
            most = max(most, self.shortest_seconds + others)
        return min(self.wanted_seconds + others, most)

    @property
    def elimination_seconds(self) -> float:
        """The seconds kept after the race, to take back each change of who is best now; 0.0 for fewer than two."""
        history = self._history
        best = max((pair for pair in history.search_results if pair[1].feasible), key=_score, default=None)
        changed = 0 if best is None else changes(best[0].config, history.request.baseline)
        if best is None or changed < 2:  # without a single one is the baseline, which races
            return 0.0
        seconds = self.probe_seconds([best[0].config, history.request.baseline], self.brief_window)
        return min(racing.FEWEST_ROUNDS * (changed + 2) * seconds, MOST_ELIMINATION * self.seconds)

    @property
    def missing_finalists(self) -> int:
        """The number of configurations that are missing to the fewest finalists beside the baseline."""
        known = {trial.config for trial, verdict in self._history.judged if verdict.feasible}
        return max(0, choice.FEWEST_FINALISTS - len(known - {self._history.request.baseline}))

    @property
    def comparison_seconds(self) -> float:
        """The seconds of the comparison of losses that the search will probably need; 0.0 if it needs none."""
        history, request = self._history, self._history.request
        domains = [request.domains.get(knob.name, (knob.default,)) for knob in KNOBS if knob.numerics]
        compared = [tuple(verdict.values.values()) for verdict in history.loss_verdicts]
        plain = tuple(knob.default for knob in KNOBS if knob.numerics)
        unknown = [values for values in itertools.product(*domains) if values != plain and values not in compared]
        if not unknown or request.goal.stability == "off":
            return 0.0
        seconds = [result.elapsed_seconds for _, result in history.comparisons if result.outcome is Outcome.OK]
        if seconds:
            return seconds[-1]
        batch = comparison_batch(history)
        paces = [_expected_seconds(trial.result, batch) for trial, _ in history.judged if trial.result.measurement]
        return min(paces, default=0.0)

    @property
    def affords_probe(self) -> bool:
        """Whether there is time for one more probe than the shortest confirmation needs."""
        return self.spare_seconds >= self._history.typical_seconds

    @property
    def race_seconds(self) -> float:
        """The seconds left for the race: those that the elimination does not need after it."""
        return self.left_seconds - self.elimination_seconds

    def affords_round(self, racers: Sequence[Config], window: ProbeBudget, keep_seconds: float = 0.0) -> bool:
        """Return whether there is time for one more round among these, with so many seconds left after it."""
        return self.left_seconds - keep_seconds >= sum(self._history.expected_seconds(window, one) for one in racers)

    def probe_seconds(self, racers: Sequence[Config], window: ProbeBudget) -> float:
        """Return the mean seconds of one probe of a race among these."""
        return statistics.fmean(self._history.expected_seconds(window, config) for config in racers)

    def schedule(self, available: int) -> racing.Schedule:
        """Return how many of so many finalists can race beside the baseline, and for how many rounds."""
        seconds = self.probe_seconds(self._racers(racing.MOST_FINALISTS), self.window)
        affordable, knee = self.race_seconds / seconds, self._objective.knee(self._history.request.goal)
        few = choice.FEWEST_FINALISTS if knee is None or affordable < KNEE_PROBES else KNEE_FINALISTS
        return racing.schedule(available, 1, affordable, few)

    def shortage(self, probes: int) -> tuple[float, int]:
        """Return by how many seconds the budget is too short for so many probes and the shortest confirmation.

        And the minutes that would be enough; 0.0 and 0 if it is long enough.
        """
        over = (probes + self._probes_after) * self._history.typical_seconds - self.spare_seconds
        if over <= 0:
            return 0.0, 0
        return over, math.ceil((self.seconds + over + self.comparison_seconds) / 60)

    def _racers(self, most: int) -> list[Config]:
        """Return the configurations that would race now: at most `most` finalists, and the baseline."""
        margin = racing.margin([rate for _, rate in self._history.references])
        found = choice.finalists(self._history.drift_corrected, self._history.request, most=most, margin=margin)
        return [*(one.config for one in found), self._history.request.baseline]


def _score(pair: Judged) -> float:
    return pair[1].value or 0.0


def comparison_batch(history: History) -> int:
    """Return the micro-batch of comparisons: the baseline's, or what of it can fit by all that ran out of memory."""
    batch = history.request.baseline.batch_size
    too_large = [t.config.batch_size for t, _ in history.judged if t.result.outcome is Outcome.OOM_DEVICE]
    while batch > 1 and batch >= min(too_large, default=batch + 1):
        batch //= 2
    return batch


def starting_seconds(result: ProbeResult) -> float:
    """Return the seconds that the process of a probe took until its model was built."""
    return sum(result.phase_seconds.get(name, 0.0) for name in ("start", "load", "build"))


def _expected_seconds(seen: ProbeResult, batch: int) -> float:
    """Return the seconds of one comparison at the pace of one probe: it starts alike, then come three runs."""
    assert seen.measurement is not None, "only what was measured has a pace"
    samples = RUNS * STEPS * batch
    return starting_seconds(seen) + min(RUNS_SLOWER * samples / seen.measurement.samples_per_second, SEED_SECONDS)
