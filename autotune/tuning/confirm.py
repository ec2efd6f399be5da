"""Confirmation: leaders and baseline race in interleaved rounds of fresh processes, so that luck does not win."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.objectives import objective_of
from autotune.objectives.base import Contender
from autotune.records import Config, Goal, StudyRequest
from autotune.results import Trial, Verdict
from autotune.stats import Rounds
from autotune.tuning import race
from autotune.tuning.broken_off import BrokenOff
from autotune.tuning.disturbance import FOUND, disturbances, is_spoiled
from autotune.tuning.preference import preferences

NOISE = 0.05  # what one probe against another may be off by on a quiet machine; near-ties are worth a confirmation


@dataclass(kw_only=True)
class Candidate:
    """A configuration in the race."""

    config: Config
    found: float | None  # score in the search; None: never measured there
    trials: list[Trial] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)  # in which each of its trials ran; empty: the first so many
    left_out: list[Trial] = field(default_factory=list)  # that others disturbed, for enough of its rounds were in peace
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
        measured = (trial.result.measurement for trial in (*self.trials, *self.left_out))
        return max((m.memory.bytes for m in measured if m is not None), default=0)

    @property
    def in_peace(self) -> int:
        """How many of its rounds nobody disturbed."""
        return sum(not disturbances(trial.result) for trial in self.trials)

    def leave_out(self) -> None:
        """Take what others disturbed out of its rounds: all if two remain, else what was spoiled if one remains.

        What was left out never has to come back, for later rounds can only add to what remains.
        """
        pairs = list(zip(self.trials, self.verdicts, strict=True))
        counts = [not (verdict.feasible and disturbances(trial.result)) for trial, verdict in pairs]
        if sum(counts) < race.FEWEST_ROUNDS:
            counts = [not (verdict.feasible and is_spoiled(trial.result)) for trial, verdict in pairs]
        if any(counts):
            self.left_out += [trial for (trial, _), does in zip(pairs, counts, strict=True) if not does]
            self.trials = [trial for (trial, _), does in zip(pairs, counts, strict=True) if does]
            self.verdicts = [verdict for (_, verdict), does in zip(pairs, counts, strict=True) if does]
            self.rounds = [number for number, does in zip(self.rounds, counts, strict=True) if does]


def leaders(
    judged: Sequence[tuple[Trial, Verdict]], request: StudyRequest, *, most: int = race.FEWEST_LEADERS,
    margin: float = 0.0,
) -> list[Candidate]:  # fmt: skip
    """The configurations worth measuring again, fastest first: `most` at most, three at least if there are.

    Between those, all that are slower than the fastest by no more than `margin`, a share: the fastest; then the
    preferred one (`preference.py`) of those that are as fast within noise; then the next fastest. What failed when it
    was last probed is out: a crash that a fresh process did not repeat does not count, a failed confirmation does.
    Where the objective gives speed for something else, those follow the fastest that have most of it within what may
    be given.
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
    slack = objective_of(request.goal).slack(request.goal)
    seen = {trial.config: _seen(trial, found) for trial, _ in judged if trial.config in found}
    least = found[ranked[0]] * (1 - (NOISE if slack is None else slack))
    rivals = (config for config in ranked[1:] if config != request.baseline)  # which is confirmed in any case
    equal = [seen[config] for config in rivals if found[config] >= least]
    keys = preferences(equal, request)
    near = [equal[one].config for one in sorted(range(len(equal)), key=lambda one: keys[one])]
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


def run(
    candidates: Sequence[Candidate], rounds: int, probe: Callable[[Config], tuple[Trial, Verdict]],
    request: StudyRequest, *,
    affords: Callable[[Sequence[Config]], bool] = lambda running: True, broken_off: BrokenOff | None = None,
) -> Sequence[Candidate]:  # fmt: skip
    """Measure all that are still in the race once per round.

    Every other round runs in reverse, so that drift meets all alike (ABBA). A candidate that fails is not measured
    again; a probe that others disturbed, its repeat included, does not decide where others of its configuration can.
    The slower half stays behind after rounds three and six, though never the baseline; if all that went on
    failed, who stayed behind is recalled. It ends sooner when it is decided, or, once the fewest rounds are over, when
    time no longer `affords` another. The rounds of a baseline that ran in an earlier race count on, and so do those of
    the same race that was `broken_off`.
    """
    baseline = request.baseline
    first = max((number + 1 for candidate in candidates for number in candidate.rounds), default=0)
    leading = sum(candidate.config != baseline for candidate in candidates)
    fewest = race.fewest_rounds(len(candidates))
    for done in range(rounds):
        number = first + done
        running = [candidate for candidate in candidates if not (candidate.lost or candidate.is_behind)]
        if not running:
            break
        ordered = running if number % 2 == 0 else running[::-1]
        configs = [candidate.config for candidate in ordered]
        before = broken_off.round(configs) if broken_off else None
        enough = done >= fewest or (done >= race.FEWEST_ROUNDS and _is_clear(running, baseline, request.goal))
        if before is None and enough and not affords(configs):
            break
        for candidate, (trial, verdict) in zip(ordered, before or map(probe, configs), strict=True):
            candidate.trials.append(trial)
            candidate.verdicts.append(verdict)
            candidate.rounds.append(number)
            candidate.leave_out()
        holding = [candidate for candidate in running if not candidate.lost]
        contenders = [candidate for candidate in holding if candidate.config != baseline]
        if leading and not contenders:
            contenders = [candidate for candidate in candidates if candidate.is_behind and not candidate.lost]
            if not contenders and done + 1 >= race.FEWEST_ROUNDS:
                break
        elif done + 1 >= race.SURE_ROUNDS and _is_decided(holding, request.goal):
            break
        going = _going_on(contenders, race.size(leading, done + 1), request)
        for candidate in contenders:
            candidate.is_behind = candidate not in going
    return candidates


def _is_clear(running: Sequence[Candidate], baseline: Config, goal: Goal) -> bool:
    """Whether more rounds than two are not worth overrunning a budget: surely faster than the baseline, or no gain."""
    names = [candidate.config for candidate in running]
    if baseline not in names or len(names) < 2 or objective_of(goal).slack(goal) is not None or not _are_told(running):
        return False
    scores, base = Rounds([candidate.by_round(candidate.scores) for candidate in running]), names.index(baseline)
    rivals = [i for i, candidate in enumerate(running) if i != base and not candidate.refused]
    ratios = [scores.ratio(i, base, race.confidence(len(rivals))) for i in rivals]
    estimate, low, _ = max(ratios, default=(0.0, 0.0, 0.0))
    return low > 1 or estimate <= 1 + race.TIE


def _going_on(contenders: Sequence[Candidate], keep: int, request: StudyRequest) -> list[Candidate]:
    if len(contenders) <= keep or not _met(contenders):
        return list(contenders)
    scores = Rounds([candidate.by_round(candidate.scores) for candidate in contenders])
    raced = [_raced(candidate, scores.mean_rate(index)) for index, candidate in enumerate(contenders)]
    keys = dict(enumerate(preferences(raced, request)))
    going = race.going_on(scores, range(len(contenders)), keep, keys, _tie(request.goal))
    return [contenders[one] for one in going]


def _met(candidates: Sequence[Candidate]) -> bool:
    """Whether there is a round that all of them ran, and that nobody disturbed; else they cannot be compared yet."""
    return bool(candidates) and bool(set.intersection(*(set(candidate.rounds) for candidate in candidates)))


def _are_told(candidates: Iterable[Candidate]) -> bool:
    """Whether rounds enough were left in peace to end sooner than planned."""
    among = list(candidates)
    return _met(among) and all(candidate.in_peace >= race.FEWEST_ROUNDS for candidate in among)


def _is_decided(holding: Sequence[Candidate], goal: Goal) -> bool:
    if not _are_told(candidate for candidate in holding if not candidate.refused):
        return False
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
