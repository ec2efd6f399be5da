"""How near the knee answers are where no batch is declared, and what the probes of a search are spent on.

    python benchmarks/knee.py [--machines 20] [--budget 60] [--noise 0.05] [--starting 1.5]

Whole searches on simulated CPUs in simulated time, as in `useless_changes.py`. A machine draws the fixed cost of a
micro-batch, so that its knee lies between the default batch of 32 and 1,024: the smallest global batch with which some
configuration truly reaches 95 % of the fastest. "Near" is within a power of two. "Beyond" are search probes with more
than twice the knee. The loss is how much slower the answer is than the fastest configuration at the knee; an answer
with a larger batch may gain.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from useless_changes import CPU

from autotune.core.records import Config, Limit
from autotune.sampler.space import build
from autotune.study.view import load_view
from autotune.testing import FACTS, FakeLauncher
from autotune.testing.machine import Machine
from autotune.tuning import engine
from autotune.tuning.reporter import SilentReporter
from autotune.tuning.settings import Settings

ENOUGH = 0.95  # of the fastest, at the knee
DEFAULT = 32  # the assumed batch: below it no batch counts as smaller


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one search came to."""

    octaves: float  # from the knee to the answer's global batch
    loss: float
    probes: int  # of the search, without rounds
    beyond: int  # of these, with more than twice the knee
    seconds: float  # over what was asked


def machine(seed: int, noise: float) -> Machine:
    """A machine that is half as fast as it can be at a batch of 2 to 60 samples."""
    chance = random.Random(seed)
    sample, half = 0.0002, chance.choice((0.5, 1.0))  # bf16 brings much or nothing
    fixed = sample * math.exp(chance.uniform(math.log(2), math.log(60)))
    return Machine(
        fixed_seconds={None: fixed, "bfloat16": fixed}, per_sample_seconds={None: sample, "bfloat16": sample * half},
        channels_last_factor={None: 1.0, "bfloat16": 1.0}, sample_loading_seconds=1e-6, cores=4,
        noise_between_probes=noise, optimizer_seconds=0.0,
    )  # fmt: skip


def search(seed: int, told: argparse.Namespace) -> Found:
    """One search on one machine."""
    held = {**FACTS.space, "activation_checkpointing": Limit(values=(False,))}
    launcher = FakeLauncher(
        machine=machine(seed, told.noise), facts=replace(FACTS, space=held), environment=CPU, seed=seed,
        starting_seconds={"start": told.starting},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study"
        settings = Settings.of(study=study, target="model.py", time_budget_seconds=told.budget, seed=seed)
        answer = engine.search(settings, launcher, SilentReporter(), launcher.clock, lambda seconds: None)
        view = load_view(study)
    request, rates = view.request, dict[int, float]()
    for config in build(request.facts, request.environment, request.goal, request.baseline).configs:
        batch = config.global_batch_size()
        rates[batch] = max(rates.get(batch, 0.0), launcher.throughput(config) or 0.0)
    knee = max(DEFAULT, min(batch for batch, rate in rates.items() if rate >= ENOUGH * max(rates.values())))
    rate = launcher.throughput(Config(values=answer.params))
    assert rate is not None, "what was recommended ran"
    searched = [one.config.global_batch_size() for one in view.trials if one.purpose == "search"]
    return Found(
        octaves=math.log2(answer.global_batch_size / knee), loss=1 - rate / rates[knee], probes=len(searched),
        beyond=sum(batch > 2 * knee for batch in searched), seconds=launcher.clock() / told.budget,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first machine")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--starting", type=float, default=1.5, help="seconds of a probe before it measures")
    told = parser.parse_args()
    found = [search(seed, told) for seed in range(told.first, told.first + told.machines)]
    print("| near the knee | octaves from it, mean | loss, mean | worst | probes | beyond the knee | of the budget |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    near = statistics.fmean(abs(one.octaves) <= 1 for one in found)
    octaves = statistics.fmean(abs(one.octaves) for one in found)
    losses = [one.loss for one in found]
    probes, beyond = (statistics.fmean(getattr(one, field) for one in found) for field in ("probes", "beyond"))
    print(
        f"| {near:.0%} | {octaves:.2f} | {statistics.fmean(losses):.1%} | {max(losses):.1%} | {probes:.1f} | "
        f"{beyond:.1f} | {statistics.fmean(one.seconds for one in found):.2f} |"
    )


if __name__ == "__main__":
    main()
