"""The ablation: each change of the winner is taken back once, and changes without a gain are dropped.

    winner     batch 64×1, bf16, nhwc, 4 workers      the winner of the confirmation, kept as best.json meanwhile
    round 1    winner · without nhwc · without workers · without bf16 · baseline
          2    the same in reverse; configurations that surely lose leave the rounds
    reduced    the winner without all changes whose removal does not measurably lose, measured in rounds too;
               if it loses, the most valuable of these changes is put back, and so on

This is backward elimination (decisions/0045). The numbers of the rounds continue those of the confirmation, and the
choice is the same (`answer/choice.py`): of the configurations that are as good as the winner, the one with the fewest
changes is recommended.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from autotune import interrupts
from autotune.answer import confirmation_rounds
from autotune.answer.confirmation_rounds import FEWEST_ROUNDS, with_round
from autotune.answer.doubtful_batch import is_taken_back
from autotune.context.search_context import SearchContext
from autotune.context.step_shares import PageFaults, evident_knobs, page_faults
from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Config
from autotune.core.stats import difference_by_chance, probe_noise, typical_rate
from autotune.errors import AutotuneError
from autotune.knobs.changes import variables
from autotune.study.answers import write_answer
from autotune.study.recommendation import Recommendation
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import Judged
from autotune.tuning.answering import recommendation_of
from autotune.tuning.probed_scores import STAGES, all_scores, scores_of
from autotune.tuning.probing import probe_with_repeat
from autotune.tuning.reversions import (
    Reversion,
    WinnerComparison,
    expected_slowdowns,
    knobs_of,
    obstacle,
    probed_slowdown,
    reversions_of,
    shown_changes,
    without,
)


def ablate(
    context: SearchContext, confirmed: Sequence[ConfigSummary], answer: Recommendation, certificate: Notice
) -> Recommendation:
    """Return the answer without the changes that gain nothing, and with the gain of each other change.

    `confirmed` is all that the confirmation measured. The answer is already stored, so nothing here may lose it: an
    interrupt or a fault of the machine ends the rounds, but not the search.
    """
    winner = Config(values=answer.params)
    reversions = reversions_of(context, winner)
    if not reversions:
        return answer
    context.reporter.phase("ablation")
    rounds, new = _Ablation(context, confirmed, winner), answer
    try:
        reversions = _run(context, rounds, reversions)
        if rounds.has_run:
            among = _among(rounds, reversions)
            readmitted = [_readmitted(one, among, rounds) for one in rounds.candidates.values()]
            new = recommendation_of(context, certificate, readmitted, among)
    except KeyboardInterrupt:
        interrupts.forget()
        why = notice(Code.CHANGE_INTERRUPTED)
        reversions = [dataclasses.replace(one, untested=one.untested or why) for one in reversions]
        context.reporter.note("Interrupted: the recommendation stands, with all of its changes.")
    except AutotuneError as error:
        context.reporter.note(f"The recommendation stands, but not all of its changes could be taken back. {error}")
    _tell_dropped(context, rounds, reversions, new)
    new = replace(
        new,
        changes=rounds.comparison.changes(reversions, new.params),
        probes=len(context.history.judged),
        seconds=round(context.budget.elapsed_seconds, 1),
    )
    write_answer(context.folder, new)
    return new


def _tell_dropped(context: SearchContext, rounds: _Ablation, changes: Sequence[Reversion], new: Recommendation) -> None:
    failure = rounds.candidates[rounds.winner].failure
    dropped = [one for one in changes if any(new.params[name] != rounds.winner[name] for name in one.knobs)]
    if failure:
        context.reporter.note(
            f"The recommendation failed when it was measured again ({failure}): another configuration is recommended."
        )
    elif new.params == new.baseline:
        context.reporter.note("With these rounds it is open again whether the recommendation gains anything.")
    elif dropped:
        shown = shown_changes(dropped, rounds.winner)
        context.reporter.note(f"Dropped, without a measurable gain: {shown}.")


def _run(context: SearchContext, rounds: _Ablation, reversions: list[Reversion]) -> list[Reversion]:
    """Take changes back as far as there is time; return all of them, with the reason why some were not measured.

    The changes that probably gain nothing are taken back together; each other change is taken back alone in the same
    rounds. Only if the configuration without the former loses is each of them taken back alone. A single change is not
    measured: without it the winner is the baseline, which was confirmed already.
    """
    testable = [one for one in reversions if not one.untested and not rounds.needs_no_rounds(one.config)]
    slowdowns = expected_slowdowns(context, rounds.winner, testable)
    first = set(variables(rounds.winner, context.request.baseline))  # single probes never suffice for variables
    batch = [one for one in reversions if is_taken_back(rounds.winner, one.config, context.request)]  # nor for this
    proven = [one for one in batch if rounds.has_enough(one.config) and rounds.loses(one.config)]  # by the race
    urgent = [one for one in testable if one in batch or not first.isdisjoint(one.knobs)]
    testable.sort(key=lambda one: (one in proven, one not in urgent, slowdowns[one.config]))
    doubtful = [one for one in testable if slowdowns[one.config] <= rounds.chance() and one not in batch]
    others = [one.config for one in testable if one not in doubtful]
    together = without(context, rounds.winner, knobs_of(doubtful))
    _run_affordable(context, rounds, [together, *others] if doubtful else others)
    if len(doubtful) > 1 and not rounds.has_failed(rounds.winner) and rounds.loses(together):
        _run_affordable(context, rounds, [one.config for one in doubtful])
    is_kept = not doubtful or rounds.loses(together)
    worthless = [
        one for one in reversions if (one in doubtful and not is_kept) or not (one.untested or rounds.loses(one.config))
    ]
    worthless.sort(key=lambda one: (one not in batch, rounds.gain(one.config)))
    while len(worthless) > 1:
        reduced = without(context, rounds.winner, knobs_of(worthless))
        if not rounds.has(reduced):
            _run_affordable(context, rounds, [reduced])
        if not rounds.loses(reduced):
            break
        worthless.pop()
    return [
        one
        if rounds.has_enough(one.config) or one.untested
        else dataclasses.replace(
            one,
            untested=notice(Code.CHANGE_DROPPED_WITH_OTHERS if one in worthless else Code.CHANGE_WITHOUT_TIME),
            seen=probed_slowdown(one, rounds.winner, context.history),  # other configurations may lose more or less
        )
        for one in reversions
    ]


def _run_affordable(context: SearchContext, rounds: _Ablation, configs: Sequence[Config]) -> None:
    """Run the configurations that may be run: as many of the first as two rounds have time for.

    The baseline runs beside them if there is time for it too.
    """
    may = [one for one in configs if one != context.request.baseline and not obstacle(context, one)]
    left, is_resumed = context.budget.left_seconds, bool(context.interrupted_ablation)
    for count, beside in itertools.product(range(len(may), 0, -1), (rounds.baseline, [])):
        if rounds.seconds(may[:count], beside) <= left or is_resumed:
            if not rounds.has_run:
                context.reporter.note(
                    "The recommendation is kept. Measuring it without its changes, in up to "
                    f"{confirmation_rounds.GOAL_ROUNDS} interleaved rounds; Ctrl-C skips this."
                )
            rounds.run(may[:count], beside)
            return


def _among(rounds: _Ablation, reversions: Sequence[Reversion]) -> set[Config]:
    """Return the configurations that may be recommended.

    These are the winner, those that are as good without some of its changes, and the baseline. If the winner fails now,
    they are all that were confirmed.
    """
    if rounds.has_failed(rounds.winner):
        return set(rounds.candidates)
    known = {one.config for one in reversions if not one.untested} | rounds.added
    return {rounds.winner, *rounds.baseline, *(one for one in known if not rounds.loses(one))}


def _readmitted(one: ConfigSummary, among: Collection[Config], rounds: _Ablation) -> ConfigSummary:
    """Return the summary, with `is_behind` cleared if it may be recommended and the winner has not failed."""
    is_back = one.config in among and not rounds.has_failed(rounds.winner)
    return dataclasses.replace(one, is_behind=one.is_behind and not is_back)


class _Ablation:
    def __init__(self, context: SearchContext, confirmed: Sequence[ConfigSummary], winner: Config) -> None:
        self._context, self.winner = context, winner
        self.candidates = {one.config: one for one in confirmed}
        self.added: set[Config] = set()  # configurations that ran first in the ablation
        self.has_run = False
        # Each change taken back has the baseline's value of one knob, and all others of the winner.
        self._probe_budget = context.budget.round_budget_of([winner, context.request.baseline])
        base = self.candidates.get(context.request.baseline)
        self.baseline = [base.config] if base is not None and not base.failure else []

    @property
    def comparison(self) -> WinnerComparison:
        """The comparison with the winner by all rounds so far."""
        context, rivals = self._context, list(self.candidates.values())
        faults = page_faults(context.history) if context.objective.is_speed else PageFaults()
        return WinnerComparison(rivals, self.winner, context.request, evident_knobs(context.history), faults)

    def has(self, config: Config) -> bool:
        """Return whether it can be compared: by enough rounds, or by one round and a probe of the search."""
        known = self.candidates.get(config)
        if known is None or known.failure or not known.scores:
            return False
        probes = all_scores(self._context.history).get(config, [])
        return self.has_enough(config) or len(probes) >= FEWEST_ROUNDS

    def has_enough(self, config: Config) -> bool:
        """Return whether it has run in enough rounds for an interval."""
        known = self.candidates.get(config)
        return known is not None and not known.failure and len(known.scores) >= FEWEST_ROUNDS

    def loses(self, config: Config) -> bool:
        """Return whether it cannot replace the winner: it is measurably worse, it failed, or too little is known.

        One or two rounds that do not decide this are read together with all other probes: they lack the power to show a
        difference of 10 %. More rounds count alone: the winner was chosen for its probes.
        """
        if self.has_failed(self.winner) or not self.has(config):
            return True
        comparison = self.comparison
        is_told = comparison.counts_alone(config) or comparison.is_decided(config)
        return comparison.loses(config) or (not is_told and self._seems_worse(config))

    def _seems_worse(self, config: Config) -> bool:
        """Return whether its mean over all probes is below the winner's by more than chance explains."""
        own, best = (all_scores(self._context.history).get(one, []) for one in (config, self.winner))
        return bool(own and best) and typical_rate(own) < (1 - self.chance(len(own), len(best))) * typical_rate(best)

    def chance(self, one: int = 1, other: int = 1) -> float:
        """Return the share by which so many probes of equal configurations may differ, by repeats in the same stage."""
        stages = [scores_of(self._context.history, stage).values() for stage in STAGES]
        return difference_by_chance(probe_noise(itertools.chain(*stages)), one, other)

    def gain(self, config: Config) -> float:
        """Return the winner's score over that of `config`; 1 if it was not measured alone but dropped with others."""
        return self.comparison.ratio(config)[0] if self.has(config) else 1.0

    def needs_no_rounds(self, config: Config) -> bool:
        """Return whether no rounds are needed: it is the baseline, or was confirmed and is decided."""
        return config in (*self.baseline, self._context.request.baseline) or self._is_decided(config)

    def has_failed(self, config: Config) -> bool:
        """Return whether it failed in a round."""
        return config in self.candidates and bool(self.candidates[config].failure)

    def seconds(self, configs: Sequence[Config], beside: Sequence[Config]) -> float:
        """Return the seconds that the fewest rounds take, of the winner, `configs`, and those `beside` them."""
        budget, candidates = self._context.budget, [self.winner, *configs, *beside]
        return FEWEST_ROUNDS * len(candidates) * budget.probe_seconds(candidates, self._probe_budget)

    def run(self, configs: Sequence[Config], beside: Sequence[Config]) -> None:
        """Measure `configs`, the winner and those `beside` them, until it is decided for each whether it loses.

        A configuration leaves the rounds once it is decided. No round begins without time for all of it. Once `configs`
        can be compared and several of them do not lose, no round begins that leaves no time to measure the winner
        without all of those.
        """
        budget, resumed = self._context.budget, self._context.interrupted_ablation
        number = 1 + max((one for candidate in self.candidates.values() for one in candidate.rounds), default=-1)
        running = list(configs)
        for done in range(confirmation_rounds.GOAL_ROUNDS):
            order = [self.winner, *running, *(one for one in beside if not self.has_failed(one))][
                :: -1 if done % 2 else 1
            ]
            before = resumed.round(order)
            several = done >= FEWEST_ROUNDS and sum(not self.loses(one) for one in configs) > 1
            last = self.seconds([self.winner], beside) if several else 0.0
            if before is None and not budget.affords_round(order, self._probe_budget, last):
                break
            for config, judged in zip(order, before or (self._probe(one) for one in order), strict=True):
                known = self.candidates.get(config, ConfigSummary(config=config))
                self.candidates[config] = with_round(dataclasses.replace(known, is_behind=False), number + done, judged)
                self.added |= {config} if config in running else set()
                self.has_run = True
            running = [one for one in running if not self.has_failed(one) and not self._is_decided(one)]
            if self.has_failed(self.winner) or not running:
                break

    def _is_decided(self, config: Config) -> bool:
        return self.has_enough(config) and not self.has_failed(self.winner) and self.comparison.is_decided(config)

    def _probe(self, config: Config) -> Judged:
        """Return a short probe: the noise is between probes, so more rounds tell more (docs/notes/timing.md 2)."""
        context, probe_budget = self._context, self._probe_budget
        is_new = config not in context.history.probed
        judged = probe_with_repeat(
            context, config, "ablation", probe_budget=probe_budget,
            has_time=lambda: context.budget.affords_repeat(config, probe_budget, 0.0),
        )  # fmt: skip
        if is_new and not judged.trial.result.outcome.retried:
            context.store.add(*judged)
        return judged
