"""What the confirmation is worth: regret, false claims and intervals under simulated drift, against simpler rules.

    python benchmarks/confirmation_rounds.py [--studies 300] [--drift 0.06] [--noise 0.03] [--spread 0.05]
                                             [--disturbed 0.05]

A probe is five segments of time: two to start, three measured, of which the median counts. The machine drifts from
segment to segment (AR(1)), the probe adds noise, and one segment in twenty is slowed by an outlier: parameters as
measured on a shared machine (docs/notes/search.md 4). With `--disturbed` so many probes are also 20 to 60 % slower as a
whole, and nothing tells why. 24 configurations, the first one being the baseline; their true
rates spread by 5 %. Selection, rounds and answer are the product's own; regret is how much slower the recommended
configuration is than the truly best one. An answer has flipped where a second search of the same machine recommends
what is truly more than 2 % faster or slower.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from autotune.answer import choice
from autotune.answer.confirmation_rounds import confirm_in_rounds, finalist_margin
from autotune.answer.recommend import StudyFacts, recommend
from autotune.core.records import Config, Goal, StudyRequest
from autotune.core.results import Measurement, MemoryPeak, Outcome, ProbeResult, Trial, Verdict
from autotune.core.rounds import Rounds
from autotune.knobs import defaults
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import Judged
from autotune.testing import ENVIRONMENT, FACTS

CONFIGURATIONS = 24
START, MEASURED = 2, 3  # segments of a probe
MEMORY, OUTLIERS, SLOWED = 0.97, 0.05, 0.35  # of the drift per segment; share of segments, and their mean slow-down
DISTURBED = 0.2, 0.6  # what a disturbed probe loses of its rate: between these
ONE_SHOT_SEGMENTS = 13  # what one probe of each may take when it costs as much as search and confirmation together
GIB = 2**30
CONFIGS = [Config(values={**defaults(), "num_workers": number}) for number in range(CONFIGURATIONS)]
REQUEST = StudyRequest(
    target="model.py", goal=Goal(global_batch=CONFIGS[0].global_batch_size()), environment=ENVIRONMENT, facts=FACTS,
    baseline=CONFIGS[0], baseline_assumed=False,
    domains={}, memory_limit_bytes=16 * GIB, enforced_limit_bytes=None, headroom_bytes=GIB,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How the simulated machine errs; standard deviations of log rates."""

    spread: float  # of the true rates
    drift: float
    noise: float
    disturbed: float = 0.0  # share of probes that are slowed as a whole


class Machine:
    """A drifting machine with a truth that only the benchmark knows."""

    def __init__(self, noise: Noise, seed: int, repetition: int = 0) -> None:
        self._noise, self._chance = noise, np.random.default_rng([seed, repetition])
        self.truth = np.random.default_rng(seed).normal(0, noise.spread, CONFIGURATIONS)
        self._drift = self._chance.normal(0, noise.drift)
        self.probes = 0.0  # of five segments

    def rate(self, number: int, segments: int = MEASURED) -> float:
        """Samples/s of one probe."""
        chance, noise = self._chance, self._noise
        self.probes += (START + segments) / (START + MEASURED)
        seen = []
        lost = chance.uniform(*DISTURBED) if chance.random() < noise.disturbed else 0.0
        for segment in range(START + segments):
            self._drift = MEMORY * self._drift + math.sqrt(1 - MEMORY**2) * chance.normal(0, noise.drift)
            slowed = chance.exponential(SLOWED) if chance.random() < OUTLIERS else 0.0
            if segment >= START:
                seen.append(self.truth[number] + self._drift + chance.normal(0, noise.noise) - slowed)
        return 1000 * math.exp(statistics.median(seen)) * (1 - lost)

    def probe(self, config: Config, purpose: str = "confirm") -> Judged:
        """The same as the product sees it."""
        rate = self.rate(CONFIGS.index(config))
        measurement = Measurement(
            samples=(1000,), step_seconds=(1000 / rate,), loader_wait_seconds=(0.0,), losses=(1.0,),
            warmup_seconds=(), memory=MemoryPeak(process_bytes=GIB, reserved_bytes=GIB),
        )  # fmt: skip
        result = ProbeResult(outcome=Outcome.OK, measurement=measurement)
        trial = Trial(number=int(self.probes), purpose=purpose, config=config, result=result)  # type: ignore[arg-type]
        return Judged(trial, Verdict(value=rate, constraints={}))

    def again(self, trial: Trial) -> Judged:
        """The same, of a configuration that seemed too slow."""
        repeat, verdict = self.probe(trial.config)
        return Judged(structs.replace(repeat, repeats=trial.number), verdict)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a rule came to."""

    fastest: int  # by its measurements
    recommended: int
    low: float  # of the claimed speed-up over the baseline; 1 for the baseline itself
    high: float

    @property
    def claims(self) -> bool:
        """Whether it says that something is faster than the baseline."""
        return self.recommended != 0 and self.low > 1


Rule = Callable[[Machine], Answer]


def one_shot(segments: int) -> Rule:
    """Probe each once, and take the highest."""

    def rule(machine: Machine) -> Answer:
        rates = [machine.rate(number, segments) for number in range(CONFIGURATIONS)]
        best = int(np.argmax(rates))
        return Answer(fastest=best, recommended=best, low=rates[best] / rates[0], high=rates[best] / rates[0])

    return rule


def confirmed(leaders: int, rounds: int) -> Rule:
    """Screen all once, then confirm so many of them, as the product does it."""

    def rule(machine: Machine) -> Answer:
        judged = [machine.probe(config, "search") for config in CONFIGS]
        margin = finalist_margin([]) if leaders > choice.FEWEST_FINALISTS else 0.0
        chosen = choice.finalists(judged, REQUEST, most=leaders, margin=margin)
        chosen = [one for one in chosen if one.config != CONFIGS[0]]
        candidates = [*chosen, ConfigSummary(config=CONFIGS[0])]
        confirmed = confirm_in_rounds(candidates, rounds, machine.probe, REQUEST, again=machine.again)
        answer = recommend(confirmed, REQUEST, StudyFacts(study="", probes=0, seconds=0.0))
        still = [one for one in confirmed if not one.is_behind]
        gaps = Rounds([one.by_round(one.rates) for one in still]).gaps(range(len(still)))
        return Answer(
            fastest=CONFIGS.index(still[max(gaps, key=lambda one: gaps[one])].config),
            recommended=CONFIGS.index(Config(values=answer.params)),
            low=answer.speedup_low or 0.0,
            high=answer.speedup_high or math.inf,
        )

    return rule


RULES: dict[str, Rule] = {
    "each probed once": one_shot(MEASURED),
    "each probed once, at the cost of the confirmation": one_shot(ONE_SHOT_SEGMENTS),
    "1 finalist, 2 rounds (no time for more)": confirmed(1, 2),
    "1 finalist, 4 rounds": confirmed(1, 4),
    "3 finalists, 2 rounds": confirmed(3, 2),
    "1 finalist, 6 rounds": confirmed(1, 6),
    "3 finalists, 4 rounds": confirmed(3, 4),
    "3 finalists, 3 rounds (before this rule)": confirmed(3, 3),
    "confirmation, 2 finalists, 12 rounds": confirmed(2, 12),
    "confirmation, 4 finalists, 8 rounds": confirmed(4, 8),
    "confirmation, 8 finalists, 8 rounds": confirmed(8, 8),
    "confirmation, 8 finalists, 12 rounds": confirmed(8, 12),
}


def line(name: str, rule: Rule, noise: Noise, studies: int) -> str:
    """One row: regrets where configurations differ, false claims where all are equal."""
    equal = replace(noise, spread=0.0)
    regrets, fastest, costs, covered, claims, flips = [], [], [], [], [], []
    for seed in range(studies):
        machine = Machine(noise, seed)
        answer, best = rule(machine), machine.truth.max()
        regrets.append(1 - math.exp(machine.truth[answer.recommended] - best))
        fastest.append(1 - math.exp(machine.truth[answer.fastest] - best))
        costs.append(machine.probes)
        if answer.recommended:
            gain = math.exp(machine.truth[answer.recommended] - machine.truth[0])
            covered.append(answer.low <= gain <= answer.high)
        claims.append(rule(Machine(equal, seed)).claims)
        again = rule(Machine(noise, seed, 1)).recommended
        flips.append(abs(machine.truth[again] - machine.truth[answer.recommended]) > choice.TIE)
    near = sum(regret <= 0.03 for regret in fastest) / studies
    holds = "-" if name.startswith("each") else f"{_mean(covered):.0%}"
    return (
        f"| {name} | {_mean(fastest):.2%} | {near:.0%} | {_mean(regrets):.2%} | {_mean(flips):.0%} | "
        f"{_mean(claims):.1%} | {holds} | {_mean(costs):.0f} |"
    )


def blocks_against_rounds(noise: Noise, studies: int) -> str:
    """False claims between two equal configurations, eight probes each: in blocks, and in turn."""
    equal, counted = replace(noise, spread=0.0), {"in blocks": 0, "in turn": 0}
    for seed in range(studies):
        machine = Machine(equal, seed)
        one, other = [machine.rate(0) for _ in range(8)], [machine.rate(1) for _ in range(8)]
        difference = float(np.mean(np.log(one)) - np.mean(np.log(other)))
        error = math.sqrt((np.var(np.log(one), ddof=1) + np.var(np.log(other), ddof=1)) / 8)
        counted["in blocks"] += abs(difference) > 2.14 * error  # Student's quantile with 14 degrees of freedom
        pairs: tuple[list[float], list[float]] = ([], [])
        for number in range(8):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                pairs[which].append(machine.rate(which))
        _, low, high = Rounds(pairs).ratio(0, 1)
        counted["in turn"] += not low <= 1 <= high
    shares = ", ".join(f"{count / studies:.1%} {how}" for how, count in counted.items())
    return f"Two equal configurations, eight probes each, told apart by a test at 5 %: {shares}."


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=300)
    parser.add_argument("--drift", type=float, default=0.06)
    parser.add_argument("--noise", type=float, default=0.03)
    parser.add_argument("--spread", type=float, default=0.05)
    parser.add_argument("--disturbed", type=float, default=0.0)
    parser.add_argument("--rule", default="", help="only rules with this word in their name")
    told = parser.parse_args()
    noise = Noise(spread=told.spread, drift=told.drift, noise=told.noise, disturbed=told.disturbed)
    print(f"{told.studies} studies of {CONFIGURATIONS} configurations, {noise}\n")
    print(
        "| rule | regret of the fastest | within 3 % | regret of the recommended | flipped "
        "| claimed faster where all are equal | speed-up within its interval | probes |"
    )
    print("|" + " --- |" * 8)
    for name, rule in RULES.items():
        if told.rule not in name:
            continue
        print(line(name, rule, noise, told.studies), flush=True)
    print(f"\n{blocks_against_rounds(noise, told.studies)}")


if __name__ == "__main__":
    main()
