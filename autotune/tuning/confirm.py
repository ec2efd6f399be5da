"""Confirmation: the leaders and the baseline again, interleaved, in fresh processes, so that luck does not win."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autotune.knobs import KNOBS
from autotune.records import Config
from autotune.results import Trial, Verdict
from autotune.tuning.disturbance import FOUND

LEADERS = 3
MOST_ROUNDS = 3
FEWEST_ROUNDS = 2  # one round has no interval
TIE = 0.02  # faster by less is not worth a larger global batch
NOISE = 0.05  # what one probe against another may be off by on a quiet machine; near-ties are worth a confirmation


@dataclass(kw_only=True)
class Candidate:
    """A configuration in the run-off."""

    config: Config
    found: float | None  # samples/s in the search; None: never measured there
    trials: list[Trial] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    refused: str = ""  # why it may not be recommended although it runs; empty: it may

    @property
    def lost(self) -> str:
        """Why it is out: it failed when it was measured again. Empty if it holds."""
        return next((verdict.reason for verdict in self.verdicts if not verdict.feasible), "")

    @property
    def rates(self) -> list[float]:
        """samples/s, one per round."""
        return [verdict.value for verdict in self.verdicts if verdict.value is not None]

    @property
    def peak_bytes(self) -> int:
        """The largest peak of its rounds."""
        measured = (trial.result.measurement for trial in self.trials)
        return max((m.memory.bytes for m in measured if m is not None), default=0)


def leaders(judged: Sequence[tuple[Trial, Verdict]], *, free: bool) -> list[Candidate]:
    """The configurations worth measuring again, fastest first.

    The fastest; then the most cautious of those that are as fast within noise (with a free global batch that is the
    smallest one); then the next fastest. What failed when it was last probed is out: a crash that a fresh process did
    not repeat does not count, a failed confirmation of an earlier run does.
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
    near = [config for config in ranked[1:] if found[config] >= found[ranked[0]] * (1 - NOISE)]
    cautious = sorted(near, key=lambda config: caution(config, free=free))[: LEADERS - 2]
    chosen = [ranked[0], *cautious]
    chosen += [config for config in ranked if config not in chosen][: LEADERS - len(chosen)]
    return [Candidate(config=config, found=found[config]) for config in sorted(chosen, key=lambda c: -found[c])]


def caution(config: Config, *, free: bool) -> tuple[float, ...]:
    """Smaller means safer: the global batch where it is free, the micro-batch, then what each knob says of itself."""
    batch = config.global_batch_size() if free else 0
    return (batch, config.batch_size, sum(knob.caution(config[knob.name]) for knob in KNOBS))


def run(
    candidates: Sequence[Candidate], rounds: int, probe: Callable[[Config], tuple[Trial, Verdict]]
) -> Sequence[Candidate]:
    """Measure all candidates once per round, every other round in reverse, so that drift meets all alike (ABBA).

    A candidate that fails is not measured again.
    """
    for number in range(rounds):
        order = candidates if number % 2 == 0 else list(reversed(candidates))
        for candidate in order:
            if candidate.lost:
                continue
            trial, verdict = probe(candidate.config)
            candidate.trials.append(trial)
            candidate.verdicts.append(verdict)
    return candidates
