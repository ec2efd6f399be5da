"""The gain of each single setting: in the recommendation, and alone over the baseline. From the study's data only.

For a change of the recommendation, it is the ratio of speed with it to speed without it; for a setting that does not
change, the ratio of another value to the present one. The strongest evidence counts:

    rounds      interleaved, with an interval: of the ablation, of the race, or of `autotune explain --measure`
    probes      single ones that differ in this setting only
    estimate    by probes that differ in more: every setting has one factor, whatever the others are
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from msgspec import field

from autotune.answer.confirmation_rounds import FEWEST_ROUNDS
from autotune.context.step_shares import short_part, short_phrase
from autotune.core import codec
from autotune.core.records import Config, Record, StudyRequest, Value
from autotune.core.results import Outcome, Trial
from autotune.core.rounds import Rounds
from autotune.core.stats import MOST_PROBE_NOISE
from autotune.errors import StudyError
from autotune.harmless import plain
from autotune.knobs import KNOBS
from autotune.knobs.base import Circumstances
from autotune.knobs.changes import BATCH_KNOBS, changes_between
from autotune.objectives import objective_of
from autotune.races.records import RaceResult
from autotune.report.gain import Gain, gain_of, gain_of_answer, inverse
from autotune.report.value_effects import Effects
from autotune.sampler.space import canonical, held_by_a_rank
from autotune.study import disk
from autotune.study.recommendation import Recommendation
from autotune.study.summary import ConfigSummary, window_noise
from autotune.study.view import AGAIN, StudyView, summaries
from autotune.units import counted

FOLDER = disk.EXPLAINED
# A hung or crashed process may be an accident of that moment; other failures are alike each time.
ACCIDENTS = frozenset(one for one in Outcome if one.retried) | {Outcome.TIMEOUT}
Pair = tuple[Config, Config]


class ValueWorth(Record, frozen=True, kw_only=True):
    """The gain of one setting: `values` over `against`, with all others as in the recommendation or the baseline."""

    values: dict[str, Value]  # of the knobs that move together
    against: dict[str, Value]
    is_change: bool  # the recommendation changes it: `values` are its own, `against` the baseline's
    is_same: bool = False  # both are the same training here: it has no effect
    inside: Gain | None = None  # in the recommendation; None: not measured
    alone: Gain | None = None  # on the baseline; None: not measured
    estimate: Gain | None = None  # where neither was measured
    failure: str = ""  # why `values` do not run in the recommendation
    is_accident: bool = False  # only by probes that hung or crashed: trying again may tell more
    untested: str = ""  # why it was not measured, if the search recorded it

    @property
    def is_open(self) -> bool:
        """Whether it was not measured in the recommendation, and can have an effect."""
        return not (self.inside or self.is_same or (self.failure and not self.is_accident))


class Explanation(Record, frozen=True, kw_only=True):
    """All settings that were searched, those that the recommendation changes first."""

    study: str
    worths: tuple[ValueWorth, ...] = field(name="settings")
    probes: int = 0  # of --measure
    with_interference: int = 0  # of these


def explain(view: StudyView, best: Recommendation) -> Explanation:
    """Return the gain of each setting of the study, as far as it was measured."""
    evidence = Evidence(view, best)
    changed = changes_between(best.baseline, best.params)
    found = [evidence.of_change(names) for names in changed]
    done = {name for names in changed for name in names}
    for names in _questions(view):
        if done.isdisjoint(names):
            found += evidence.of_kept(names)
    races = list(_races(view.folder))
    return Explanation(
        study=str(view.folder), worths=tuple(found), probes=sum(one.probes for one in races),
        with_interference=sum(one.with_interference for one in races),
    )  # fmt: skip


def _questions(view: StudyView) -> Iterator[tuple[str, ...]]:
    """Yield the names of the searched knobs, with micro-batch and accumulation together."""
    moving = [knob.name for knob in KNOBS if len(view.request.domains.get(knob.name, ())) > 1]
    if set(moving) & set(BATCH_KNOBS):
        yield BATCH_KNOBS
    yield from ((name,) for name in moving if name not in BATCH_KNOBS)


class Evidence:
    """The measurements of a study, from which the gain of each setting is looked up."""

    def __init__(self, view: StudyView, best: Recommendation) -> None:
        self._view, self._best = view, best
        self._canonical = partial(canonical_for, view.request)
        self.params = self._canonical(best.params)
        self.baseline = self._canonical(best.baseline)
        self._summaries = {one.config: one for one in summaries(view)}
        self._rounds = dict(_in_turns(best, self._summaries)) | dict(_in_rounds(best, self.params, self.baseline))
        self._rounds |= {
            (self._canonical(one.values), self._canonical(other.values)): gain
            for (one, other), gain in _measured_since(view.folder)
        }

    @cached_property
    def _effects(self) -> Effects:
        explored = replace(self._view, recommendation=None)  # without rounds, which ran in other minutes
        return Effects([one for one in summaries(explored) if one.feasible])

    def of_change(self, names: Sequence[str]) -> ValueWorth:
        """Return the gain of one change of the recommendation."""
        values, against = ({name: of[name] for name in names} for of in (self._best.params, self._best.baseline))
        inside = self._compared(self.params, self._with(self.params, against))
        alone = self._compared(self._with(self.baseline, values), self.baseline)
        return self._worth(values, against, inside, alone, is_change=True)

    def rival(self, worth: ValueWorth) -> Config:
        """Return what the recommendation is compared with to measure it: itself with the other value."""
        return self._with(self.params, worth.against if worth.is_change else worth.values)

    def of_kept(self, names: Sequence[str]) -> list[ValueWorth]:
        """Return the alternatives to a kept value with known gains; else one alternative; empty if there is none."""
        against = {name: self._best.params[name] for name in names}
        found = []
        for values in self._alternatives(names, against):
            other = self._with(self.params, values)
            inside = self._compared(other, self.params)
            alone = inside
            if self.params != self.baseline:
                alone = self._compared(self._with(self.baseline, values), self.baseline)
            worth = self._worth(values, against, inside, alone, is_change=False, is_same=other == self.params)
            found.append(worth)
        known = [one for one in found if one.inside or one.alone or one.is_same or one.failure]
        return sorted(known, key=_strength) or sorted(found, key=_strength)[:1]

    def _alternatives(self, names: Sequence[str], against: Mapping[str, Value]) -> list[dict[str, Value]]:
        domains = self._view.request.domains
        if tuple(names) == BATCH_KNOBS:  # probed ones: others may not give the global batch
            probed = [{name: config[name] for name in names} for config in self._summaries]
            probed += [{name: trial.config[name] for name in names} for trial in self._view.trials]
        else:
            (name,) = names
            probed = [{name: value} for value in domains[name]]
        unlike = [one for one in probed if repr(one) != repr(dict(against))]
        return list({repr(one): one for one in unlike}.values())

    def _worth(
        self, values: dict[str, Value], against: dict[str, Value], inside: Gain | None, alone: Gain | None, *,
        is_change: bool, is_same: bool = False,
    ) -> ValueWorth:  # fmt: skip
        measured = inside or alone
        estimate = None if measured or is_same else self._effects.between(values, against)
        failure, is_accident = ("", False) if inside else self.failure(self._with(self.params, values))
        left = (one.untested for one in self._best.changes or () if is_change and one.values == values)
        untested = "" if inside else next((one.text for one in left if one), "")
        if not (measured or is_change) and (short := short_part(self._view.history, self._with(self.baseline, values))):
            untested = short_phrase(self._view.history, short)
        return ValueWorth(
            values=values, against=against, is_change=is_change, is_same=is_same, inside=inside, alone=alone,
            estimate=estimate, failure=failure, is_accident=is_accident, untested=plain(untested),
        )  # fmt: skip

    def failure(self, config: Config) -> tuple[str, bool]:
        """Return why this configuration cannot be used, and whether only hung or crashed probes say so.

        Empty if it can be used, or if that is unknown. Probes of `--measure` count.
        """
        tried = [(one, self._view.verdict(one)) for one in (*self._view.trials, *self._again) if one.config == config]
        failed = [(trial.result.outcome, verdict.why) for trial, verdict in tried if not verdict.feasible]
        if not failed:
            return "", False
        last, why = failed[-1]
        if all(outcome in ACCIDENTS for outcome, _ in failed):
            alike = sum(outcome is last for outcome, _ in failed)
            return f"{alike} of {counted(len(tried), 'probe')} {why}", True
        known = self._summaries.get(config)
        return (why if known is None else known.failure), False

    @cached_property
    def _again(self) -> tuple[Trial, ...]:
        """All probes of `--measure`, also of races that did not end."""
        places = sorted(self._view.folder.glob(f"{FOLDER}/*"))
        return tuple(trial for place in places for trial in disk.read_trials(place))

    def _compared(self, one: Config, other: Config) -> Gain | None:
        """Return the measured ratio of the one to the other; None: not measured."""
        if one == other:
            return None
        if gain := self._rounds.get((one, other)):
            return gain
        if gain := self._rounds.get((other, one)):
            return inverse(gain)
        a, b = (self._summaries.get(config) for config in (one, other))
        if a is None or b is None or not (a.feasible and b.feasible):
            return None
        is_race = a.compared is not None
        if is_race != (b.compared is not None):
            return None  # a lucky probe is not compared with rounds
        if not is_race and len({trial.purpose in AGAIN for it in (a, b) for trial in it.trials}) > 1:
            return None  # a probe of the search and rounds ran in other minutes, maybe beside other work
        least = 0.0 if is_race else MOST_PROBE_NOISE
        spread = math.hypot(*(max(least, it.relative_half_width or MOST_PROBE_NOISE) for it in (a, b)))
        ratio = a.score / b.score
        return Gain(
            ratio=ratio,
            low=ratio * max(0.0, 1 - spread),
            high=ratio * (1 + spread),
            by="rounds" if is_race else "probes",
        )

    def _with(self, config: Config, values: Mapping[str, Value]) -> Config:
        return self._canonical({**config.values, **values})


def canonical_for(request: StudyRequest, values: Mapping[str, Value]) -> Config:
    """Return the configuration without values that have no effect beside the others, in the study of this request."""
    facts, held = request.facts, held_by_a_rank(request.goal, request.facts)
    here = Circumstances(facts=facts, environment=request.environment, global_batch=held)
    return canonical(Config(values=dict(values)), here)


def _in_turns(best: Recommendation, known: Mapping[Config, ConfigSummary]) -> Iterator[tuple[Pair, Gain]]:
    """Yield the ratios of all configurations that ran in every round of the confirmation, by their rates in each.

    `known` are the probes, whose windows give the uncertainty of each rate.
    """
    whole = [one for one in best.confirmations if len(one.rounds) == best.rounds]
    if best.rounds < FEWEST_ROUNDS or not objective_of(best.goal).is_speed:
        return
    noise = window_noise([known[one.config] for one in whole if one.config in known])
    rates = Rounds([one.rounds for one in whole], window_noise=noise)
    for (a, one), (b, other) in itertools.permutations(enumerate(whole), 2):
        ratio, low, high = rates.ratio(a, b)
        yield (one.config, other.config), Gain(ratio=ratio, low=low, high=high, by="rounds")


def _in_rounds(best: Recommendation, params: Config, baseline: Config) -> Iterator[tuple[Pair, Gain]]:
    """Yield the ratios on which the answer itself rests."""
    if (open_one := best.undecided) and params == baseline:
        yield (
            (open_one.config, baseline),
            Gain(ratio=open_one.gain, low=open_one.gain_low, high=open_one.gain_high, by="rounds"),
        )
    winner = {**best.params, **{k: v for one in best.changes or () for k, v in one.values.items()}}
    for one in best.changes or ():
        if gain := gain_of(one):
            without = Config(values={**winner, **one.before})
            # A change that was dropped was measured beside others; its ratio is used as if those did not matter.
            yield (Config(values=winner), without), gain
            yield (Config(values={**params.values, **one.values}), Config(values={**params.values, **one.before})), gain
    if params != baseline and (gain := gain_of_answer(best)):
        yield (params, baseline), gain


def _measured_since(folder: Path) -> Iterator[tuple[Pair, Gain]]:
    """Yield the ratios that `--measure` found, the latest race last."""
    for race in _races(folder):
        first, *others = race.standings
        for one in others:
            if one.ratio is not None:
                yield (
                    (one.config, first.config),
                    Gain(ratio=one.ratio, low=one.ratio_low, high=one.ratio_high, by="rounds"),
                )


def _races(folder: Path) -> Iterator[RaceResult]:
    """Yield the races of `--measure` in this study, the latest last."""
    for place in sorted(folder.glob(f"{FOLDER}/*/{disk.RACE}")):
        with suppress(StudyError):  # a race that a later version wrote
            yield codec.read(place, RaceResult)


def _strength(one: ValueWorth) -> tuple[int, float]:
    """Return a sort key: the best known first, then the fastest."""
    gain = one.inside or one.alone or one.estimate
    if gain is None:
        return (3 if not one.failure else 2), float(one.is_same)
    return ("rounds", "probes", "estimate").index(gain.by), -gain.ratio
