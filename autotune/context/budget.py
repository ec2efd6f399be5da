"""The time budget of one search: how much is left, and how much is kept for each later stage.

    │ elapsed │ to explore with    │ precision check      │ confirmation  │ ablation    │    what is kept
    │ elapsed │ spare                     │ precision check │ shortest one  │                  the least of it

Nothing begins that is not expected to end in time, repeats included (decisions/0047 has the rules).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from autotune.answer import choice, confirmation_rounds
from autotune.answer.confirmation_end import SURE_ROUNDS
from autotune.answer.confirmation_rounds import FEWEST_ROUNDS, MOST_FINALISTS, probe_count
from autotune.context import time_shares
from autotune.context.probe_budgets import BRIEF, LEAST, SEARCH, ConfirmationPlan, round_budget
from autotune.context.step_shares import unproven_variables
from autotune.core.records import Config
from autotune.core.requests import FEWEST_PROBE_STEPS, ProbeBudget
from autotune.core.results import Outcome
from autotune.objectives import objective_of
from autotune.precision.duration import CHECK_STEPS, SEED_SECONDS, probable_check_seconds
from autotune.precision.judge import THRESHOLDS
from autotune.sampler.space import change_count
from autotune.study.history import History
from autotune.study.valid_probes import BACK_OFF_SECONDS

SIMPLER_PROBES = 2  # kept to take changes back before the confirmation, if there may be no time for it afterwards
KNEE_FINALISTS = 5  # with a free global batch: eight rounds need not order configurations that are within 5 %
SHORT_ROUNDS = confirmation_rounds.fewest_rounds(2)  # of the fastest against the baseline, for a useful interval
CLEAR_GAIN = 1.5  # by single probes: two rounds prove it, if probes err by 10 % (`core/rounds.Rounds`)
THREE_PROBES = probe_count(choice.FEWEST_FINALISTS, SHORT_ROUNDS, 1)  # with fewer finalists there are more rounds


class TimeBudget(time_shares.TimeShares):
    """The time budget of one run: it answers all questions of time, by the history, a clock and the user's seconds."""

    def __init__(self, history: History, seconds: float, clock: Callable[[], float], began: float) -> None:
        """`began` is the moment of `clock`, in seconds, at which the search began."""
        super().__init__(seconds, clock, began)
        self._history, self._objective = history, objective_of(history.request.goal)
        self._probes_after = self._objective.probes_after(history.request.goal)
        self._known_candidates: dict[tuple[int, int], list[Config]] = {}  # by version, and the most finalists

    @property
    def spare_seconds(self) -> float:
        """The seconds left that the precision check and the shortest confirmation do not need."""
        return self.left_seconds - self.precision_check_seconds - self.shortest_confirmation_seconds

    @property
    def explorable_seconds(self) -> float:
        """The seconds left for the exploration: those that are not kept for later stages."""
        return self.left_seconds - self.reserve_seconds

    @property
    def profile_seconds(self) -> float:
        """The seconds that a profile of the baseline may take now."""
        return min(time_shares.MOST_PROFILING * self.seconds, self.spare_seconds)

    @property
    def prediction_seconds(self) -> float:
        """The seconds that a prediction of memory may take now; 0.0 if fewer than its share are spare."""
        most = time_shares.MOST_PREDICTING * self.seconds
        return most if most <= self.spare_seconds else 0.0

    @property
    def waiting_seconds(self) -> float:
        """The seconds for which the search may wait now for a quiet machine; below 0 if none are spare."""
        return min(time_shares.MOST_WAITING * self.seconds, self.spare_seconds)

    @property
    def usual_probe_budget(self) -> ProbeBudget:
        """The budget of a probe that is measured for its own sake, such as the baseline's."""
        return self._objective.probe_budget

    @property
    def round_probe_budget(self) -> ProbeBudget:
        """The budget of a probe in rounds: short if the objective is speed, as more rounds tell more than long ones."""
        return self.round_budget_of(self._candidates(MOST_FINALISTS))

    def round_budget_of(self, candidates: Sequence[Config]) -> ProbeBudget:
        """Return the same for rounds of these."""
        return round_budget(self._history.request, candidates) if self._objective.is_speed else self.usual_probe_budget

    @property
    def search_probe_budget(self) -> ProbeBudget:
        """The budget of a search probe if there is enough time."""
        return SEARCH if self._objective.is_speed else self.usual_probe_budget

    def next_probe_budget(self, config: Config) -> ProbeBudget:
        """Return the budget of a search probe of `config` that begins now: smaller if time is short."""
        seconds, budgets = self.explorable_seconds, self._this_and_smaller(self.search_probe_budget)
        return next((one for one in budgets if self._searching_seconds(one, config) <= seconds), budgets[-1])

    def least_seconds(self, config: Config) -> float:
        """Return the seconds of the shortest search probe of `config`."""
        return self._searching_seconds(self._this_and_smaller(self.usual_probe_budget)[-1], config)

    @property
    def first_probe_budget(self) -> ProbeBudget:
        """The budget of the first probe, before which only the step of the inspection has been timed.

        If steps are long, each of the probe's three parts (`child/window.py`) takes the longest window.
        """
        step, share = self._history.request.facts.step, time_shares.FIRST_SHARE * self.left_seconds
        seconds, budgets = (step and step.seconds) or 0.0, self._this_and_smaller(self.usual_probe_budget)
        parts, least = 3 * ProbeBudget().min_steps * seconds, FEWEST_PROBE_STEPS * seconds
        fit = (b for b in budgets if least + min(parts, 3 * b.max_seconds) <= share >= b.min_seconds)
        return next(fit, budgets[-1])

    @property
    def shortest_confirmation_seconds(self) -> float:
        """The seconds of the shortest confirmation: two rounds of the fastest and the baseline, shortest windows."""
        return self._confirming_seconds(self._this_and_smaller(self.usual_probe_budget)[-1], FEWEST_ROUNDS)

    @property
    def short_confirmation_seconds(self) -> float:
        """The seconds of a short confirmation of the same two: four rounds, or two if the gain is clear by now."""
        return self._confirming_seconds(self.round_probe_budget, FEWEST_ROUNDS if self.has_clear_gain else SHORT_ROUNDS)

    @property
    def full_confirmation_seconds(self) -> float:
        """The seconds of a confirmation of eight rounds, of the candidates that it would begin with now."""
        among = self._candidates(MOST_FINALISTS)
        probes = probe_count(len(among) - 1, confirmation_rounds.GOAL_ROUNDS, 1)
        return probes * self.probe_seconds(among, self.round_probe_budget)

    @property
    def ablation_seconds(self) -> float:
        """The seconds kept after the confirmation, to take back each change of the configuration that is best now.

        They are 0.0 for fewer than two changes, or if two rounds of the best and another one do not fit in.
        """
        (changed, rounds), share = self._ablation, time_shares.MOST_ABLATION * self.seconds
        fits = 2 * rounds <= min(share, self.left_seconds)
        return min((changed + 2) * rounds, share) if changed > 1 and fits else 0.0

    @property
    def affords_ablation(self) -> bool:
        """Whether all changes of the configuration that is best now can be taken back after the confirmation."""
        changed, rounds = self._ablation
        return changed < 2 or (changed + 2) * rounds <= time_shares.MOST_ABLATION * self.seconds

    @property
    def _ablation(self) -> tuple[int, float]:
        """The number of changes of the best one now, and the seconds of the fewest rounds of one configuration."""
        best, baseline = self._candidates(1)[0], self._history.request.baseline
        seconds = FEWEST_ROUNDS * self.probe_seconds([best, baseline], self.round_probe_budget)
        return change_count(best, baseline), seconds  # without its single change it is the baseline

    @property
    def confirmation_seconds(self) -> float:
        """The seconds left for the confirmation: without those of the ablation, if the rest is long enough."""
        left = self.left_seconds - self.ablation_seconds
        return left if left >= self.short_confirmation_seconds else self.left_seconds

    @property
    def proof_seconds(self) -> float:
        """The seconds to confirm one more finalist, if the best one now sets a variable and time is short; else 0.0."""
        is_open = not self.affords_ablation and unproven_variables(self._history, self._candidates(1)[0])
        return self.shortest_confirmation_seconds / 2 if is_open and self._objective.is_speed else 0.0

    @property
    def reserve_seconds(self) -> float:
        """The seconds that the exploration keeps for the confirmation and what comes before and after it.

        Without time for the shortest confirmation: a margin for probes that take longer, as single probes are compared.
        While only the baseline ran, 0.0 if a probe would leave no time for it: later searches use what is tried then.
        """
        missing, least = self.missing_finalists, self.shortest_confirmation_seconds
        if not self._has_time_for(FEWEST_ROUNDS):
            return self.late_seconds
        if missing == choice.FEWEST_FINALISTS:
            return least if self.left_seconds >= least + self._history.times.typical_seconds else 0.0
        probes_after = self._probes_after + (0 if self.affords_ablation else SIMPLER_PROBES)
        others = self.precision_check_seconds + self._history.times.typical_seconds * probes_after + self.proof_seconds
        most = time_shares.MOST_RESERVED * self.seconds
        if missing == 0:
            most = max(most, self.short_confirmation_seconds + others)
        return max(least, min(self.full_confirmation_seconds + self.ablation_seconds + others, most))

    def next_probe_seconds(self, least: float) -> float:
        """Return the seconds that the next probe of the exploration may take, `least` or more.

        While there are too few finalists, the time is divided by the number of those that are missing.
        """
        return max(least, self.explorable_seconds / max(1, self.missing_finalists))

    @property
    def missing_finalists(self) -> int:
        """How many feasible configurations, without the baseline, are missing for the fewest finalists."""
        known = {trial.config for trial, verdict in self._history.judged if verdict.feasible}
        return max(0, choice.FEWEST_FINALISTS - len(known - {self._history.request.baseline}))

    @property
    def precision_check_seconds(self) -> float:
        """The seconds of the precision check that the search will probably need; 0.0 if it needs none."""
        checks = self._history.precision_checks
        seconds = [result.elapsed_seconds for _, result in checks if result.outcome is Outcome.OK]
        expected = probable_check_seconds(self._history, CHECK_STEPS)
        needed = seconds[-1] if seconds and expected else expected
        return min(needed, time_shares.MOST_CHECKING * self.seconds) if self.affords_precision_check else 0.0

    @property
    def most_precision_check_seconds(self) -> float:
        """The seconds that a precision check may take now, with time for the shortest confirmation after it."""
        return max(0.0, self.left_seconds - self.shortest_confirmation_seconds)

    @property
    def affords_precision_check(self) -> bool:
        """Whether there is time for a precision check of the fewest steps that can decide anything."""
        needed = probable_check_seconds(self._history, THRESHOLDS.least_steps)
        return needed <= min(self.most_precision_check_seconds, SEED_SECONDS)

    def affords_probe(self, config: Config | None = None) -> bool:
        """Return whether a search probe, of `config` if given, leaves time for the shortest confirmation."""
        needed = self._history.times.typical_seconds if config is None else self.least_seconds(config)
        return needed <= self.spare_seconds

    def affords_repeat(self, config: Config, budget: ProbeBudget, keep_seconds: float | None = None) -> bool:
        """Return whether a probe can be repeated after a pause, and leave `keep_seconds`; None: all but spare ones."""
        spare = self.spare_seconds if keep_seconds is None else self.left_seconds - keep_seconds
        return spare >= BACK_OFF_SECONDS + self._history.times.expected_seconds(budget, config)

    def affords_round(self, candidates: Sequence[Config], budget: ProbeBudget, keep_seconds: float = 0.0) -> bool:
        """Return whether there is time for one more round among these, with `keep_seconds` left after it."""
        return self.left_seconds - keep_seconds >= len(candidates) * self.probe_seconds(candidates, budget)

    def probe_seconds(self, candidates: Sequence[Config], budget: ProbeBudget) -> float:
        """Return the mean seconds of one probe of a confirmation among these."""
        return statistics.fmean(self._history.times.expected_seconds(budget, config) for config in candidates)

    def finalists(self, available: int) -> int:
        """Return how many of `available` finalists can be confirmed; 0 if there is no time for a single round.

        Without time for four rounds of three finalists it is 1: of all ways to spend up to 14 probes, this has the
        least regret (`benchmarks/confirmation_rounds.py`).
        """
        if not (self._has_time_for(1) or self._has_time_for(FEWEST_ROUNDS)):
            return 0
        candidates, knee = self._candidates(MOST_FINALISTS), self._objective.knee(self._history.request.goal)
        affordable = self.confirmation_seconds / self.probe_seconds(candidates, self.round_probe_budget)
        few = choice.FEWEST_FINALISTS if affordable >= THREE_PROBES else 1
        if knee is not None and affordable >= probe_count(KNEE_FINALISTS, SURE_ROUNDS, 1):
            few = KNEE_FINALISTS
        return confirmation_rounds.finalist_count(available, 1, affordable, few)

    def confirmation_plan(self, candidates: Sequence[Config], finalist_total: int, known: int = 0) -> ConfirmationPlan:
        """Return the plan to confirm these, `finalist_total` of them finalists, after `known` of its probes.

        Its probes have the shortest windows only if there is otherwise no time for enough rounds.
        """
        others, left, plans = len(candidates) - finalist_total, self.confirmation_seconds, list[ConfirmationPlan]()
        fewest = FEWEST_ROUNDS if known or self._has_time_for(FEWEST_ROUNDS) else 1
        usual = self.round_budget_of(candidates)
        for budget in (usual, *self._this_and_smaller(usual)[-1:]):
            seconds = self.probe_seconds(candidates, budget)
            rounds = range(confirmation_rounds.USUAL_ROUNDS, FEWEST_ROUNDS, -1)
            fit = (n for n in rounds if (probe_count(finalist_total, n, others) - known) * seconds <= left)
            plans.append(ConfirmationPlan(probe_budget=budget, rounds=next(fit, fewest), probe_seconds=seconds))
        # The shortest window may hold a single burst of a loader: fewer rounds are better, as long as they can decide.
        enough = min(confirmation_rounds.fewest_rounds(len(candidates)), SURE_ROUNDS)
        return next((one for one in plans if one.rounds >= enough), plans[-1])

    def _this_and_smaller(self, wanted: ProbeBudget) -> tuple[ProbeBudget, ...]:
        """Return this budget and smaller ones, largest first; no smaller ones if the objective is not speed."""
        return (wanted, BRIEF, LEAST) if self._objective.is_speed else (wanted,)

    def _searching_seconds(self, budget: ProbeBudget, config: Config) -> float:
        return self._history.times.expected_seconds(budget, config, in_search=True)

    def _has_time_for(self, rounds: int) -> bool:
        """Return whether so many rounds fit; always if the baseline does not run, as an answer needs them then."""
        late = self.late_seconds / 2 if rounds > 1 else 0.0  # the other half is for rounds that take longer
        needed = self.shortest_confirmation_seconds * rounds / FEWEST_ROUNDS
        return self.left_seconds + late >= needed or not self._history.baseline_runs

    def _confirming_seconds(self, budget: ProbeBudget, rounds: int) -> float:
        """Return the seconds of so many rounds of the best so far and the baseline."""
        return self.probe_seconds(self._candidates(1), budget) * probe_count(1, rounds, 1)

    @property
    def has_clear_gain(self) -> bool:
        """Whether single probes show that the best configuration is surely faster than the baseline."""
        score = self._history.summary(self._history.request.baseline).found
        return score is not None and self._history.best_score >= CLEAR_GAIN * score

    def _candidates(self, most: int) -> list[Config]:
        """Return what a confirmation would begin with now: at most `most` finalists, and the baseline if it runs."""
        now = (self._history.version, most)
        if now not in self._known_candidates:  # asked a dozen times between two probes
            margin = confirmation_rounds.finalist_margin(self._history.baseline_rates)
            found = choice.finalists(self._history.drift_corrected, self._history.request, most=most, margin=margin)
            own = [self._history.request.baseline] if self._history.baseline_runs or not found else []
            self._known_candidates[now] = [*(one.config for one in found), *own]
        return self._known_candidates[now]
