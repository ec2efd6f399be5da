"""The elimination: every change of the leader is taken back once, and what is worth nothing is dropped.

    leader     batch 64×1, bf16, nhwc, 4 workers      the winner of the race, kept as best.json while this runs
    round 1    leader · without nhwc · without workers · without bf16 · baseline
          2    the same in reverse; who surely loses leaves
    reduced    leader without all that does not measurably lose, in such rounds itself; if it loses, the most valuable
               change is put back, and so on

Backward elimination (decisions/0045). The rounds count on from those of the race, and the choice is the same
(`choice.py`): of those that are as good as the leader the one with the fewest changes is recommended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from autotune.core.records import Config
from autotune.core.requests import ProbeBudget
from autotune.errors import AutotuneError
from autotune.knobs.changes import changes_between
from autotune.study import layout as disk
from autotune.study.answers import write_answer
from autotune.study.interference import Judged
from autotune.study.recommendation import Recommendation
from autotune.study.summary import ConfigSummary
from autotune.tuning import racing
from autotune.tuning.budget import LAST_ROUND, elimination_probes
from autotune.tuning.context import SearchContext
from autotune.tuning.probing import probe_with_repeat
from autotune.tuning.reversions import NO_TIME, Reversion, Standings, doubtful_first, shown_changes
from autotune.units import counted

Recommend = Callable[[list[ConfigSummary], Collection[Config]], Recommendation]  # among these, all of them measured


def eliminate(
    context: SearchContext, raced: Sequence[ConfigSummary], answer: Recommendation, recommended: Recommend
) -> Recommendation:
    """Return the answer without the changes that are worth nothing, and with what the others are worth.

    `raced`: all that the confirmation measured. The answer is already kept, so nothing here may cost it: an interrupt
    ends the rounds and not the search, and so does a fault of the machine.
    """
    leader = Config(values=answer.params)
    undone = _taken_back(context, leader)
    if not undone:
        return answer
    rounds, new = _Rounds(context, raced, leader), answer
    try:
        undone = _run(context, rounds, undone)
        if rounds.has_run:
            new = recommended([*rounds.racers.values()], _among(rounds, undone))
    except KeyboardInterrupt:
        undone = [dataclasses.replace(one, untested=one.untested or "interrupted") for one in undone]
        context.reporter.note("Interrupted: the recommendation stands, with all of its changes.")
    except AutotuneError as error:
        context.reporter.note(f"The recommendation stands, but not all of its changes could be taken back. {error}")
    _tell_dropped(context, rounds, undone, new)
    new = replace(
        new,
        changes=rounds.standings.changes(undone, new.params),
        probes=len(context.history.judged),
        seconds=round(context.budget.elapsed_seconds, 1),
    )
    write_answer(context.folder / disk.BEST, new)
    return new


def _tell_dropped(context: SearchContext, rounds: _Rounds, undone: Sequence[Reversion], new: Recommendation) -> None:
    failure = rounds.racers[rounds.leader].failure
    dropped = [one for one in undone if any(new.params[name] != rounds.leader[name] for name in one.knobs)]
    if failure:
        context.reporter.note(f"The recommendation failed when it was measured again ({failure}): another one stands.")
    elif dropped:
        shown = shown_changes(dropped, rounds.leader)
        context.reporter.note(f"Dropped, without a measurable gain: {shown}.")


def _taken_back(context: SearchContext, leader: Config) -> list[Reversion]:
    """Return the leader without each of its changes to the baseline, and why some of these cannot be run."""
    baseline = context.request.baseline
    made = []
    for names in changes_between(baseline.values, leader.values):
        values = {**leader.values, **{name: baseline[name] for name in names}}
        config = context.space.canonical(Config(values=values))
        made.append(Reversion(knobs=names, config=config, untested=_obstacle(context, config)))
    return made


def _obstacle(context: SearchContext, config: Config) -> str:
    """Return why `config` cannot be run or recommended: the space, its losses, or memory; empty if it can."""
    excluded, refused = context.space.excludes(config), context.history.refusal(config)
    if excluded or refused is not None:
        return excluded or (refused.text if refused else "")
    latest = [verdict for trial, verdict in context.history.judged if trial.config == config][-1:]
    if latest and not latest[0].feasible:
        return latest[0].reason.partition("\n")[0].rstrip(".")
    return "it would not fit into memory" if context.guard.fits(config) is False else ""


def _run(context: SearchContext, rounds: _Rounds, undone: list[Reversion]) -> list[Reversion]:
    """Run each reversion, then what remains without all that lose nothing; return them with those that were left out.

    A single change is not run: without it is the baseline, which has raced already.
    """
    testable = [one for one in undone if not one.untested and not rounds.is_known(one.config)]
    chosen = _affordable(context, rounds, doubtful_first(testable, context.history, rounds.leader))
    late = [one for one in testable if one not in chosen]
    undone = [dataclasses.replace(one, untested=NO_TIME) if one in late else one for one in undone]
    if chosen:
        context.reporter.note(
            f"The recommendation is kept. Taking back {counted(len(chosen), 'change')}, one at a time, in up to "
            f"{racing.GOAL_ROUNDS} interleaved rounds; Ctrl-C skips this."
        )
        rounds.run([one.config for one in chosen], keeps_last_rounds=len(chosen) > 1)
    worthless = [one for one in undone if not (one.untested or rounds.loses(one.config))]
    worthless.sort(key=lambda one: rounds.standings.ratio(one.config)[0])
    while len(worthless) > 1:
        reduced = context.space.canonical(_without(rounds.leader, worthless, context.request.baseline))
        if not context.space.excludes(reduced) and context.guard.fits(reduced) is not False:
            rounds.run([reduced])
            no_time = not rounds.has(reduced) and not rounds.has_failed(reduced)
            if no_time or not rounds.loses(reduced):
                break
        worthless.pop()
    return undone


def _without(leader: Config, worthless: Sequence[Reversion], baseline: Config) -> Config:
    names = [name for one in worthless for name in one.knobs]
    return Config(values={**leader.values, **{name: baseline[name] for name in names}})


def _among(rounds: _Rounds, undone: Sequence[Reversion]) -> set[Config]:
    """Return who may be recommended: the leader, what is as good without some of its changes, and the baseline.

    All that raced if the leader fails now.
    """
    if rounds.has_failed(rounds.leader):
        return set(rounds.racers)
    known = {one.config for one in undone if not one.untested} | rounds.added
    return {rounds.leader, *rounds.baseline, *(one for one in known if not rounds.loses(one))}


def _affordable(context: SearchContext, rounds: _Rounds, ordered: Sequence[Reversion]) -> list[Reversion]:
    """Return the first ones that there is time for; those of an elimination that is gone on with, in their order."""
    before = context.interrupted_elimination.finalists
    if before[:1] == [rounds.leader]:
        known = {one.config: one for one in ordered}
        return [known[config] for config in before if config in known]
    budget = context.budget
    for count in range(len(ordered), 0, -1):
        racers = [rounds.leader, *rounds.baseline, *(one.config for one in ordered[:count])]
        if elimination_probes(count) * budget.probe_seconds(racers, budget.brief_window) <= budget.left_seconds:
            return list(ordered[:count])
    return []


class _Rounds:
    """The rounds of the elimination, on top of those of the race."""

    def __init__(self, context: SearchContext, raced: Sequence[ConfigSummary], leader: Config) -> None:
        self._context, self.leader = context, leader
        self.racers = {one.config: one for one in raced}
        self.added: set[Config] = set()  # that ran here first
        self.has_run = False
        base = self.racers.get(context.request.baseline)
        self.baseline = [base.config] if base is not None and not base.failure else []

    @property
    def standings(self) -> Standings:
        """What all rounds so far say."""
        return Standings(list(self.racers.values()), self.leader, self._context.request)

    def has(self, config: Config) -> bool:
        """Whether it has run in enough rounds to be compared, and holds."""
        known = self.racers.get(config)
        return known is not None and not known.failure and len(known.scores) >= racing.FEWEST_ROUNDS

    def loses(self, config: Config) -> bool:
        """Whether it cannot take the leader's place: it is measurably worse, it failed, or too little is known."""
        return self.has_failed(self.leader) or not self.has(config) or self.standings.loses(config)

    def is_known(self, config: Config) -> bool:
        """Whether no rounds are needed: it is the baseline, or has raced and is settled."""
        return config in (*self.baseline, self._context.request.baseline) or self._is_settled(config)

    def has_failed(self, config: Config) -> bool:
        """Whether it failed in a round."""
        return config in self.racers and bool(self.racers[config].failure)

    def run(self, configs: Sequence[Config], *, keeps_last_rounds: bool = False) -> None:
        """Measure these beside the leader and the baseline, until it is settled for each whether it loses.

        Those for which it is settled leave. No round is begun that there is no time for, nor, once there are enough to
        compare, one that leaves no time for the rounds of what remains.
        """
        window, resumed, budget = self._window(configs), self._context.interrupted_elimination, self._context.budget
        last = racing.FEWEST_ROUNDS * LAST_ROUND * budget.probe_seconds([self.leader], budget.brief_window)
        number = 1 + max((one for racer in self.racers.values() for one in racer.rounds), default=-1)
        running = list(configs)
        for done in range(racing.GOAL_ROUNDS):
            beside = [one for one in self.baseline if not self.has_failed(one)]
            order = [self.leader, *running, *beside][:: 1 if done % 2 == 0 else -1]
            before = resumed.round(order)
            keep = last if keeps_last_rounds and done >= racing.FEWEST_ROUNDS else 0.0
            if before is None and not budget.affords_round(order, window, keep):
                break
            for config, judged in zip(order, before or (self._probe(one, window) for one in order), strict=True):
                racer = self.racers.get(config, ConfigSummary(config=config))
                racer = dataclasses.replace(racer, is_behind=False)
                self.racers[config] = racing.with_round(racer, number + done, judged)
                self.added |= {config} if config in running else set()
                self.has_run = True
            if self.has_failed(self.leader):
                break
            running = [one for one in running if not self.has_failed(one) and not self._is_settled(one)]
            if not running:
                break

    def _is_settled(self, config: Config) -> bool:
        return self.has(config) and self.standings.is_settled(config)

    def _window(self, configs: Sequence[Config]) -> ProbeBudget:
        """The whole window if there is time for three rounds of it, else the brief one."""
        budget, racers = self._context.budget, [self.leader, *configs, *self.baseline]
        whole = racing.SURE_ROUNDS * len(racers) * budget.probe_seconds(racers, budget.window)
        return budget.window if whole <= budget.left_seconds else budget.brief_window

    def _probe(self, config: Config, window: ProbeBudget) -> Judged:
        context = self._context
        is_new = config not in context.history.probed
        judged = probe_with_repeat(
            context, config, "ablation", window=window,
            has_time=lambda: context.budget.affords_round([config], window),
        )  # fmt: skip
        if is_new and not judged[0].result.outcome.retried:
            context.store.add(*judged)
        return judged
