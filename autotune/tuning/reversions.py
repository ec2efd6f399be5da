"""The changes of a winner taken back, one at a time: which may be run, in which order, and what their rounds show.

A change loses measurably if the winner without it scores at least 2 % less, beyond the interval of their common rounds;
beyond 5 % its 80 % interval is enough: one that includes 0 then often means too few rounds (`choice.is_tied`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autotune.answer.choice import MOST_TIE, PROBABLE_CONFIDENCE, TIE
from autotune.answer.confirmation_end import SURE_CONFIDENCE, SURE_ROUNDS
from autotune.answer.confirmation_rounds import FEWEST_ROUNDS
from autotune.answer.doubtful_batch import is_taken_back, is_worth_it, least_gain
from autotune.answer.ranking import compared
from autotune.context.search_context import SearchContext
from autotune.context.step_shares import PageFaults, evident_knobs, page_faults, unproven_variables
from autotune.core.codes import UNMEASURED, Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Config, StudyRequest, Value
from autotune.core.stats import HALF_WIDTH_DEVIATIONS, PROBABLE_DEVIATIONS, typical_rate
from autotune.knobs import knob
from autotune.knobs.changes import changes_between, variables
from autotune.objectives import objective_of
from autotune.study.history import History
from autotune.study.recommendation import Change
from autotune.study.summary import ConfigSummary, Status, rounds_of
from autotune.tuning.probed_scores import all_scores, search_scores

LEAST_RATIO = 1e-3  # a lower bound of 0 says as little


@dataclass(frozen=True, kw_only=True)
class Reversion:
    """The winner without one of its changes."""

    knobs: tuple[str, ...]  # knobs that change together
    config: Config
    untested: Notice | None = None  # why it is not run; None: it may be
    seen: float | None = None  # share of the score that single probes lost without it; None: unknown


def own_slowdown(one: Reversion, winner: Config, scores: Mapping[Config, float]) -> float | None:
    """Return the share of the score that the winner lost without this change; None if one of the two has no score."""
    if winner not in scores or one.config not in scores:
        return None
    return 1 - scores[one.config] / scores[winner]


def probed_slowdown(one: Reversion, winner: Config, history: History) -> float | None:
    """Return `own_slowdown` by probes of the search if both ran there, else by all: rounds ran in other minutes."""
    if (slowdown := own_slowdown(one, winner, search_scores(history))) is not None:
        return slowdown
    return own_slowdown(one, winner, {config: typical_rate(values) for config, values in all_scores(history).items()})


def seen_slowdown(one: Reversion, winner: Config, scores: Mapping[Config, float], baseline: Config) -> float | None:
    """Return the share of the score that probes lost without this change; None if no two probes differ in it alone.

    It is that of the winner itself if known, else the median over other configurations that differ in it.
    """
    if (slowdown := own_slowdown(one, winner, scores)) is not None:
        return slowdown
    own, others = ({name: source[name] for name in one.knobs} for source in (winner, baseline))
    making = [config for config in scores if own.items() <= config.values.items()]
    pairs = [(made, Config(values=made.values | others)) for made in making]
    slowdowns = [1 - scores[without] / scores[made] for made, without in pairs if without in scores]
    return statistics.median(slowdowns) if slowdowns else None


def reversions_of(context: SearchContext, winner: Config) -> list[Reversion]:
    """Return the winner without each of its changes to the baseline, and why some of these cannot be run."""
    made = []
    for names in changes_between(context.request.baseline.values, winner.values):
        config = without(context, winner, names)
        made.append(Reversion(knobs=names, config=config, untested=obstacle(context, config)))
    return made


def obstacle(context: SearchContext, config: Config) -> Notice | None:
    """Return why `config` cannot be run or recommended: the space, its losses, or memory; None if it can."""
    excluded, refused = context.space.excludes(_on_ladder(context, config)), context.history.refusal(config)
    if excluded or refused is not None:
        return notice(Code.CHANGE_OUTSIDE_SPACE, why=excluded) if excluded else refused
    latest = [verdict for trial, verdict in context.history.judged if trial.config == config][-1:]
    if latest and not latest[0].feasible:
        return latest[0].reason
    if context.guard.is_dangerous(config):
        return notice(Code.CHANGE_CRASHED)
    return notice(Code.CHANGE_NEEDS_MEMORY) if context.guard.fits(config) is False else None


def _on_ladder(context: SearchContext, config: Config) -> Config:
    """Return `config` with the nearest micro-batch of the space: the refinement also probes those between."""
    batches = [int(value or 0) for value in context.space.domains["batch_size"]]
    limit = context.request.limits.get("batch_size")
    is_listed = limit is not None and limit.values is not None
    is_between = min(batches) <= config.batch_size <= max(batches)
    if context.request.goal.global_batch is not None or is_listed or not is_between:
        return config
    near = min(batches, key=lambda one: abs(one - config.batch_size))
    return Config(values={**config.values, "batch_size": near})


def expected_slowdowns(context: SearchContext, winner: Config, reversions: Sequence[Reversion]) -> dict[Config, float]:
    """Return the share by which the winner is expected to be worse without each: by probes, the model, or else 2 %."""
    request, configs = context.request, [winner, *(one.config for one in reversions)]
    predicted: dict[Config, float] = {}
    if context.objective.is_speed:
        expected = context.expected(configs)
        predicted = {config: one.samples_per_second for config, one in expected}
    scores = search_scores(context.history)
    slowdowns = {}
    for one in reversions:
        seen = seen_slowdown(one, winner, scores, request.baseline)
        if seen is None and winner in predicted and one.config in predicted:
            seen = 1 - predicted[one.config] / predicted[winner]
        slowdowns[one.config] = TIE if seen is None else seen
    return slowdowns


def without(context: SearchContext, winner: Config, names: Sequence[str]) -> Config:
    """Return the winner with the baseline's values of these knobs."""
    values = {**winner.values, **{name: context.request.baseline[name] for name in names}}
    return context.space.canonical(Config(values=values))


def without_variables(context: SearchContext, config: Config) -> Config:
    """Return `config` without the environment variables that it sets; unchanged if it changes nothing else.

    Variables that counted page faults justify are kept.
    """
    reduced = without(context, config, unproven_variables(context.history, config))
    return config if reduced == context.request.baseline else reduced


def proven(context: SearchContext, measured: Sequence[ConfigSummary]) -> set[Config]:
    """Return those of `measured` that may be recommended by what their environment variables gain.

    A configuration is left out unless it is surely faster than itself without its variables, if that ran to the end of
    the same rounds. One that keeps no memory is left out if itself with memory kept ran there too, and gains more than
    a tie by these rounds and by page faults.
    """
    history, request = context.history, context.request
    ran, evident = [one for one in measured if one.status is Status.CONFIRMED], evident_knobs(history)
    scores, places = rounds_of(ran), {one.config: i for i, one in enumerate(ran)}
    twins = {one.config: without_variables(context, one.config) for one in measured}
    doubted = [one for one, twin in twins.items() if one != twin and {one, twin} <= places.keys()]
    unproven = {one for one in doubted if scores.ratio(places[one], places[twins[one]])[1] <= 1}
    plain = {one: without(context, one, evident) for one in places}
    kept = [one for one, other in plain.items() if other in places.keys() - {one, request.baseline}]
    faulting = {
        plain[one] for one in kept
        if WinnerComparison(ran, one, request, evident, page_faults(history)).loses(plain[one])
    }  # fmt: skip
    return twins.keys() - unproven - faulting if context.objective.is_speed else set(twins)


def knobs_of(reversions: Sequence[Reversion]) -> list[str]:
    """Return the names of the knobs that these take back."""
    return [name for one in reversions for name in one.knobs]


class WinnerComparison:
    """The winner, the baseline and the reversions, compared by all rounds that they have run."""

    def __init__(
        self, candidates: Sequence[ConfigSummary], winner: Config, request: StudyRequest, evident: Collection[str] = (),
        faults: PageFaults | None = None,
    ) -> None:  # fmt: skip
        """Leave out the failed `candidates`. `evident` knobs need no more proof than others, as `faults` show."""
        ran = [one for one in candidates if not one.failure and one.scores]
        base = next((i for i, one in enumerate(ran) if one.config == request.baseline), None)
        summaries, _, self._scores = compared(ran, base)
        self._summaries = {one.config: one for one in summaries}
        self._places = {one.config: i for i, one in enumerate(ran)}
        self._failures = {one.config: notice(Code.FAILED, failure=one.failed) for one in candidates if one.failed}
        self._winner, self._request, self._evident, self._faults = winner, request, evident, faults or PageFaults()

    def ratio(self, config: Config, confidence: float = 0.95) -> tuple[float, float, float]:
        """Return the winner's score over that of `config`: estimate, lower and upper bound."""
        return self._scores.ratio(self._places[self._winner], self._places[config], confidence)

    def loses(self, config: Config) -> bool:
        """Return whether it is measurably worse than the winner: in its score, or in another aim of the objective.

        An environment variable, or a batch that changes what the model learns, is kept only if the winner is surely
        better with it; the batch must also gain more.
        """
        if is_taken_back(self._winner, config, self._request):
            return is_worth_it(self._scores, self._places[self._winner], self._places[config], self._request)
        winner, one = self._summaries[self._winner], self._summaries[config]
        if objective_of(self._request.goal).is_lower(winner, one):
            return True
        estimate, low, probable = self._believed(one)
        is_probable = estimate > 1 + MOST_TIE and probable > 1 and not self.is_without_variable(config)
        return estimate > 1 + TIE and (low > 1 or is_probable)

    def _believed(self, one: ConfigSummary) -> tuple[float, float, float]:
        """Return the winner's score over that of `one`, and lower bounds at 95 and 80 %: by rounds and by page faults.

        Rounds count alone if they surely show no gain, also without their luck.
        """
        (estimate, low, high), luck = self.ratio(one.config), self._faults.luck(one.trials)
        if high <= (1 + TIE) * (1 - luck) or not self._spares_faults(one.config):
            return estimate, low, self.ratio(one.config, PROBABLE_CONFIDENCE)[1]
        error = math.log(estimate / max(low, LEAST_RATIO)) / HALF_WIDTH_DEVIATIONS
        gain, error = self._faults.gain_beside(math.log(estimate), error, luck)
        sure, probable = (gain - width * error for width in (HALF_WIDTH_DEVIATIONS, PROBABLE_DEVIATIONS))
        return math.exp(gain), math.exp(sure), math.exp(probable)

    def _spares_faults(self, config: Config) -> bool:
        """Return whether the winner has a setting that counted page faults ask for, and `config` does not."""
        return self._faults.spared_share > 0 and any(self._winner[name] != config[name] for name in self._evident)

    def counts_alone(self, config: Config) -> bool:
        """Return whether only rounds may decide if it loses: three were run, or other probes never prove that."""
        is_batch = is_taken_back(self._winner, config, self._request)
        return is_batch or self._met(config) >= SURE_ROUNDS or self.is_without_variable(config)

    def _met(self, config: Config) -> int:
        return self._scores.count(self._places[self._winner], self._places[config])

    def is_without_variable(self, config: Config) -> bool:
        """Return whether it lacks an environment variable that the winner sets."""
        own, kept = (set(variables(one, self._request.baseline)) for one in (self._winner, config))
        return not own <= kept.union(self._evident)

    def is_decided(self, config: Config) -> bool:
        """Return whether more rounds cannot change if it loses: surely by more than 2 %, or surely by no more.

        If a batch was taken back that changes what the model learns, the share is `least_gain`.
        """
        _, low, high = self.ratio(config, SURE_CONFIDENCE)
        is_batch = is_taken_back(self._winner, config, self._request)
        least = least_gain(self._request) if is_batch else TIE
        enough = self._met(config) >= SURE_ROUNDS
        return low > 1 + least or (enough and high <= 1 + least)

    def changes(self, reversions: Sequence[Reversion], params: Mapping[str, Value]) -> tuple[Change, ...]:
        """Return what each change of the winner gains; `params` are those of the recommendation."""
        return tuple(self._change(one, params) for one in reversions)

    def _change(self, one: Reversion, params: Mapping[str, Value]) -> Change:
        values, before = ({name: of[name] for name in one.knobs} for of in (self._winner, self._request.baseline))
        kept = all(params[name] == value for name, value in values.items())
        is_open = one.config not in self._failures and (one.untested is None or one.untested.code in UNMEASURED)
        spared = notice(Code.CHANGE_SPARES_FAULTS, share=self._faults.usual_share)
        reason = spared if kept and is_open and self._spares_faults(one.config) else None
        met = self._winner in self._places and one.config in self._places
        if not met or self._scores.count(self._places[self._winner], self._places[one.config]) < FEWEST_ROUNDS:
            why = self._failures.get(one.config) or one.untested or notice(Code.CHANGE_NOT_MEASURED)
            ratio = None if one.seen is None else round(1 - one.seen, 4)
            return Change(values=values, before=before, kept=kept, ratio=ratio, untested=why, reason=reason)
        estimate, low, high = self.ratio(one.config)
        winner, without = self._summaries[self._winner], self._summaries[one.config]
        return Change(
            values=values,
            before=before,
            kept=kept,
            ratio=round(1 / estimate, 6),
            ratio_low=round(1 / high, 6) if math.isfinite(high) else None,
            ratio_high=round(1 / low, 6) if low > 0 else None,
            memory_ratio=round(without.peak_bytes / winner.peak_bytes, 4) if winner.peak_bytes else None,
            reason=reason if low <= 1 else None,
        )


def shown_changes(reversions: Sequence[Reversion], winner: Config) -> str:
    """Return the changes with the winner's values: `channels_last yes, batch_size 64×1`."""
    return ", ".join(
        f"{one.knobs[0]} " + "".join(knob(name).show(winner[name]) for name in one.knobs) for one in reversions
    )
