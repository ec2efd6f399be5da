"""What correcting for drift is worth: by how much rates of one configuration err, as measured and as corrected.

    python benchmarks/drift.py [--searches 300]

A machine as in `confirmation_rounds.py` (AR(1) drift, 3 % of noise per probe, one probe in thirty slowed by 10 to 40 %)
probes one configuration again and again; every ninth probe is a reference, which is repeated where it shows a drift
that no other has shown. Printed is the standard deviation of the other rates without their own noise: how wrongly a
search orders configurations that it probed at different times. "Every reference" is what was done before
decisions/0048.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from autotune.core.records import Config
from autotune.core.results import Measurement, MemoryPeak, Outcome, ProbeResult, Trial, Verdict
from autotune.knobs import defaults
from autotune.study.valid_probes import MOST_DRIFT, Judged, baseline_rates, drift_factor, is_baseline_due

SEGMENTS, NOISE, OUTLIERS, LOST, STEP = 5, 0.03, 1 / 30, (0.1, 0.4), 0.25
WORLDS = {  # drift, its memory per segment, whether the machine once loses a quarter of its speed
    "no drift": (0.0, 0.97, False),
    "drift of 2 %": (0.02, 0.97, False),
    "drift of 6 %": (0.06, 0.97, False),
    "slow drift of 6 %": (0.06, 0.995, False),
    "one step of 25 %": (0.02, 0.97, True),
}
BASELINE = Config(values=defaults())
SEEN = ProbeResult(
    outcome=Outcome.OK, elapsed_seconds=1.0,
    measurement=Measurement(
        samples=(1,), step_seconds=(1.0,), loader_wait_seconds=(0.0,), losses=(1.0,), warmup_seconds=(),
        memory=MemoryPeak(process_bytes=1),
    ),
)  # fmt: skip


def search(
    chance: np.random.Generator, count: int, world: tuple[float, float, bool]
) -> tuple[list[Judged], list[float]]:
    """Return the probes of a search, and the level of the machine (log rate) at each."""
    drift, memory, steps = world
    level, jump = chance.normal(0, drift), chance.integers(5, count) if steps else math.inf
    judged: list[Judged] = []
    levels: list[float] = []
    while sum(trial.purpose == "search" for trial, _ in judged) < count:
        for _ in range(SEGMENTS):
            level = memory * level + math.sqrt(1 - memory**2) * chance.normal(0, drift)
        levels.append(level - STEP * (len(levels) >= jump))
        lost = chance.uniform(*LOST) if chance.random() < OUTLIERS else 0.0
        rate = math.exp(levels[-1] + chance.normal(0, NOISE)) * (1 - lost)
        purpose = "reference" if is_baseline_due(judged, BASELINE, 1.0) else "search" if judged else "baseline"
        trial = Trial(number=len(judged), purpose=purpose, config=BASELINE, result=SEEN)  # type: ignore[arg-type]
        judged.append(Judged(trial, Verdict(value=rate, constraints={})))
    return judged, levels


def by_every_reference(number: int, rates: list[tuple[int, float]]) -> float:
    """Return the factor that interpolates all references, if one of them moved."""
    if not any(abs(rate / rates[0][1] - 1) > MOST_DRIFT for _, rate in rates):
        return 1.0
    return float(np.interp(number, [one for one, _ in rates], [rate for _, rate in rates]) / rates[0][1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=300)
    searches = parser.parse_args().searches
    rules = {"not corrected": lambda number, rates: 1.0, "by every reference": by_every_reference,
             "by two in a row": drift_factor}  # fmt: skip
    print(f"| machine | search probes | {' | '.join(rules)} |\n| --- | --- |{' --- |' * len(rules)}")
    for name, world in WORLDS.items():
        for count in (15, 40):
            chance, squares = np.random.default_rng(count), {rule: 0.0 for rule in rules}
            for _ in range(searches):
                judged, levels = search(chance, count, world)
                rates = baseline_rates(judged, BASELINE)
                searched = [trial.number for trial, _ in judged if trial.purpose == "search"]
                for rule, factor in rules.items():
                    squares[rule] += float(np.var([levels[one] - math.log(factor(one, rates)) for one in searched]))
            errors = " | ".join(f"{math.sqrt(total / searches):.1%}" for total in squares.values())
            print(f"| {name} | {count} | {errors} |", flush=True)


if __name__ == "__main__":
    main()
