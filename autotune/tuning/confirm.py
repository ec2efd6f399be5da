"""Confirmation: leaders and baseline race in interleaved rounds of fresh processes, so that luck does not win."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.knobs import KNOBS
from autotune.objectives import objective_of
from autotune.objectives.base import Contender
from autotune.records import Config, Goal
from autotune.results import Trial, Verdict
from autotune.stats import Rounds
from autotune.tuning import race
from autotune.tuning.broken_off import BrokenOff
from autotune.tuning.disturbance import FOUND

NOISE = 0.05  # what one probe against another may be off by on a quiet machine; near-ties are worth a confirmation


THROUGHPUT = Goal()


@dataclass(kw_only=True)
class Candidate:
    """A configuration in the race."""

    config: Config
    found: float | None  # score in the search; None: never measured there
    trials: list[Trial] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)  # in which each of its trials ran; empty: the first so many
    refused: str = ""  # why it may not be recommended although it runs; empty: it may
    is_behind: bool = False  # others went on, for it was slower: it is listed, and cannot win

    @property
    def lost(self) -> str:
        """Why it is out: it failed when it was measured again. Empty if it holds."""
        return next((verdict.reason for verdict in self.verdicts if not verdict.feasible), "")

    @property
    def scores(self) -> list[float]:
        """What the objective makes of it, one per round."""
        return [verdict.value for verdict in self.verdicts if verdict.value is not None]

    @property
    def rates(self) -> list[float]:
        """samples/s, one per round."""
        measured = (trial.result.measurement for trial in self.trials)
        return [m.samples_per_second for m in measured if m is not None]

    def by_round(self, values: Sequence[float]) -> list[float | None]:
        """`values`, one per trial, at the places of their rounds; None where it did not run."""
        placed = dict(zip(self.rounds or range(len(values)), values, strict=True))
        return [placed.get(number) for number in range(max(placed, default=-1) + 1)]

    @property
    def peak_bytes(self) -> int:
        """The largest peak of its rounds."""
        measured = (trial.result.measurement for trial in self.trials)
        return max((m.memory.bytes for m in measured if m is not None), default=0)


def leaders(
    judged: Sequence[tuple[Trial, Verdict]], *, free: bool, goal: Goal = THROUGHPUT, most: int = race.FEWEST_LEADERS,
    margin: float = 0.0,
) -> list[Candidate]:  # fmt: skip
    """The configurations worth measuring again, fastest first: `most` at most, three at least if there are.

    Between those, all that are slower than the fastest by no more than `margin`, a share: the fastest; then the most
    cautious of those that are as fast within noise (with a free global batch that is the smallest one); then the next
    fastest. What failed when it was last probed is out: a crash that a fresh process did not repeat does not count, a
    failed confirmation does. Where the objective of `goal` gives speed
    for something else, those follow the fastest that have most of it within what may be given.
    """
    values: dict[Config, list[float]] = {}
    for trial, verdict in judged:
        if verdict.feasible and verdict.value is not None and trial.purpose in FOUND:
            values.setdefault(trial.config, []).append(verdict.value)
    latest = {trial.config: verdict for trial, verdict in judged}
    found = {config: sum(rates) / len(rates) for config, rates in values.items() if latest[config].feasible}
    ranked = sorted(found, key=lambda config: -found[config])
    if not ranked:
        return []
    objective = objective_of(goal)
    slack = objective.slack(goal)
    order = {trial.config: objective.order(_seen(trial, found)) for trial, _ in judged if trial.config in found}
    near = [
        config for config in ranked[1:] if found[config] >= found[ranked[0]] * (1 - (NOISE if slack is None else slack))
    ]
    near.sort(key=lambda config: (order[config], *caution(config, free=free)))
    within = sum(found[config] >= found[ranked[0]] * (1 - max(margin, slack or 0.0)) for config in ranked)
    count = min(most, max(within, race.FEWEST_LEADERS))
    seats = min(1, count - 2) if slack is None else count - 1  # for who is not chosen for speed alone
    chosen = list(dict.fromkeys((ranked[0], *near[: max(seats, 0)], *ranked)))[:count]
    return [Candidate(config=config, found=found[config]) for config in sorted(chosen, key=lambda c: -found[c])]


def _seen(trial: Trial, found: Mapping[Config, float]) -> Contender:
    """A probe of the search, as an objective looks at it."""
    measured = trial.result.measurement
    return Contender(
        config=trial.config,
        score=found[trial.config],
        samples_per_second=measured.samples_per_second if measured is not None else 0.0,
        peak_bytes=measured.memory.bytes if measured is not None else 0,
    )


def caution(config: Config, *, free: bool) -> tuple[float, ...]:
    """Smaller means safer: the global batch where it is free, the micro-batch, then what each knob says of itself."""
    batch = config.global_batch_size() if free else 0
    return (batch, config.batch_size, sum(knob.caution(config[knob.name]) for knob in KNOBS))


def run(
    candidates: Sequence[Candidate], rounds: int, probe: Callable[[Config], tuple[Trial, Verdict]], *,
    baseline: Config | None = None, goal: Goal = THROUGHPUT,
    affords: Callable[[Sequence[Config]], bool] = lambda running: True, broken_off: BrokenOff | None = None,
) -> Sequence[Candidate]:  # fmt: skip
    """Measure all that are still in the race once per round.

    Every other round runs in reverse, so that drift meets all alike (ABBA). A candidate that fails is not measured
    again. The slower half stays behind after rounds three and six, though never the `baseline`; if all that went on
    failed, who stayed behind is recalled. It ends sooner when it is decided, or, once the fewest rounds are over, when
    time no longer `affords` another. The rounds of a baseline that ran in an earlier race count on, and so do those of
    the same race that was `broken_off`.
    """
    first = max((number + 1 for candidate in candidates for number in candidate.rounds), default=0)
    leading = sum(candidate.config != baseline for candidate in candidates)
    fewest = race.fewest_rounds(len(candidates))
    for done in range(rounds):
        number = first + done
        running = [candidate for candidate in candidates if not (candidate.lost or candidate.is_behind)]
        ordered = running if number % 2 == 0 else running[::-1]
        configs = [candidate.config for candidate in ordered]
        before = broken_off.round(configs) if broken_off else None
        if before is None and done >= fewest and not affords(configs):
            break
        for candidate, (trial, verdict) in zip(ordered, before or map(probe, configs), strict=True):
            candidate.trials.append(trial)
            candidate.verdicts.append(verdict)
            candidate.rounds.append(number)
        holding = [candidate for candidate in running if not candidate.lost]
        contenders = [candidate for candidate in holding if candidate.config != baseline]
        if leading and not contenders:
            contenders = [candidate for candidate in candidates if candidate.is_behind and not candidate.lost]
            if not contenders and done + 1 >= race.FEWEST_ROUNDS:
                break
        elif done + 1 >= race.SURE_ROUNDS and _is_decided(holding, goal):
            break
        going = _going_on(contenders, race.size(leading, done + 1), goal)
        for candidate in contenders:
            candidate.is_behind = candidate not in going
    return candidates


def _going_on(contenders: Sequence[Candidate], keep: int, goal: Goal) -> list[Candidate]:
    if len(contenders) <= keep:
        return list(contenders)
    scores = Rounds([candidate.by_round(candidate.scores) for candidate in contenders])
    cautions = {
        index: (
            objective_of(goal).order(_raced(candidate, scores.mean_rate(index))),
            *caution(candidate.config, free=goal.global_batch is None),
        )
        for index, candidate in enumerate(contenders)
    }
    return [contenders[one] for one in race.going_on(scores, range(len(contenders)), keep, cautions, _tie(goal))]


def _is_decided(holding: Sequence[Candidate], goal: Goal) -> bool:
    scores = Rounds([candidate.by_round(candidate.scores) for candidate in holding])
    return race.is_decided(scores, [i for i, candidate in enumerate(holding) if not candidate.refused], _tie(goal))


def _tie(goal: Goal) -> float:
    """By which share of the best score a configuration may fall behind and still win."""
    slack = objective_of(goal).slack(goal)
    return race.TIE if slack is None else slack


def _raced(candidate: Candidate, score: float) -> Contender:
    """A candidate, as an objective looks at it."""
    rates = candidate.rates
    return Contender(
        config=candidate.config,
        score=score,
        samples_per_second=sum(rates) / max(len(rates), 1),
        peak_bytes=candidate.peak_bytes,
    )
