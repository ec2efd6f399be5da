"""How near the knee answers are where no batch is declared, how fast they are, and how often two searches agree.

    python benchmarks/knee.py [--machines 20] [--budget 60] [--noise 0.05] [--starting 1.5] [--like tabular]

Whole searches on simulated CPUs in simulated time, as in `useless_changes.py`; each machine is searched twice, with
other noise. A machine draws the fixed cost of a micro-batch, so that its knee lies between the default batch of 32 and
1,024: the smallest global batch with which some configuration truly reaches 95 % of the fastest. With `--like tabular`
it is fitted to `benchmarks/targets/tabular.py` as plain loops measured it (`studies/answers-epyc/tabular.json`): most
of a step loads, workers gain little, and on every second machine batches beyond a limit load more slowly.

"Near" is within a power of two of the knee. The share is of the fastest configuration of the space. "Beyond" are
search probes with more than twice the knee.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec
from useless_changes import CPU

from autotune.context.reporter import SilentReporter
from autotune.core.records import Config, Limit
from autotune.preparation.settings import Settings
from autotune.sampler.space import build
from autotune.study.view import load_view
from autotune.testing import FACTS, FakeLauncher
from autotune.testing.machine import Machine
from autotune.tuning import engine

ENOUGH = 0.95  # of the fastest, at the knee
GOAL = 0.93  # of the fastest, that no answer should miss
DEFAULT = 32  # the assumed batch: below it no batch counts as smaller
OTHER_NOISE = 1000  # added to the seed of the second search of a machine
TWO_CORES = msgspec.structs.replace(CPU, usable_cores=2, default_threads=2)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one search came to."""

    batch: int
    octaves: float  # from the knee to the answer's global batch
    share: float  # of the fastest
    probes: int  # of the search, without rounds
    beyond: int  # of these, with more than twice the knee
    seconds: float  # over what was asked


@dataclass(frozen=True, kw_only=True)
class Tabular(Machine):
    """A machine on which a step of a small perceptron mostly loads.

    Measured: 82, 123, 175, 194, 217, 165 and 142 thousand samples/s with 32 to 2,048 samples and no workers. The
    default of this class has 82, 119, 154, 181, 198, 158 and 141.
    """

    most: float = 512.0  # samples that load fast in the training process: infinite without a limit
    worker_seconds: float = 1e-5  # of a worker for a sample, which it also sends
    batch_seconds: float = 1.5e-3  # of receiving a batch

    def loading_seconds(self, config: Config) -> float:
        """Seconds to load the samples of one optimizer step."""
        workers, batch = int(config.values.get("num_workers") or 0), config.batch_size
        if workers:
            seconds = batch * self.worker_seconds / min(workers, self.cores) + self.batch_seconds
        else:
            seconds = batch * self.sample_loading_seconds * (1 + max(0.0, 1 - self.most / batch))
        return config.gradient_accumulation_steps * seconds


def machine(seed: int, noise: float, like: str) -> Machine:
    """A machine that is half as fast as it can be at a batch of 2 to 60 samples, or one like that of `tabular`."""
    chance = random.Random(seed)
    if like == "tabular":
        fixed, most = 2.6e-4 * math.exp(chance.uniform(-0.7, 0.7)), chance.choice((math.inf, 512.0))
        return Tabular(
            fixed_seconds={None: fixed, "bfloat16": 2 * fixed}, per_sample_seconds={None: 8e-7, "bfloat16": 7e-7},
            channels_last_factor={None: 1.0, "bfloat16": 1.0}, sample_loading_seconds=3.6e-6, cores=2,
            per_sample_bytes={None: 1e4, "bfloat16": 1e4}, noise_between_probes=noise, optimizer_seconds=0.0, most=most,
        )  # fmt: skip
    sample, half = 0.0002, chance.choice((0.5, 1.0))  # bf16 brings much or nothing
    fixed = sample * math.exp(chance.uniform(math.log(2), math.log(60)))
    return Machine(
        fixed_seconds={None: fixed, "bfloat16": fixed}, per_sample_seconds={None: sample, "bfloat16": sample * half},
        channels_last_factor={None: 1.0, "bfloat16": 1.0}, sample_loading_seconds=1e-6, cores=4,
        noise_between_probes=noise, optimizer_seconds=0.0,
    )  # fmt: skip


def search(seed: int, noise_seed: int, told: argparse.Namespace) -> Found:
    """One search on one machine."""
    held = {**FACTS.space, "activation_checkpointing": Limit(values=(False,)), "compile_mode": Limit(values=(None,))}
    facts = msgspec.structs.replace(FACTS, space=held)
    if told.like == "tabular":
        held["channels_last"] = Limit(values=(False,))
        facts = msgspec.structs.replace(facts, space=held, has_convolution=False, dataset_samples=65536)
    launcher = FakeLauncher(
        machine=machine(seed, told.noise, told.like), facts=facts,
        environment=TWO_CORES if told.like == "tabular" else CPU, seed=noise_seed,
        starting_seconds={"start": told.starting},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study"
        settings = Settings.of(study=study, target="model.py", time_budget_seconds=told.budget, seed=noise_seed)
        answer = engine.search(settings, launcher, SilentReporter(), launcher.clock, lambda seconds: None)
        view = load_view(study)
    request, rates = view.request, dict[int, float]()
    for config in build(request.facts, request.environment, request.goal, request.baseline).configs:
        batch = config.global_batch_size()
        rates[batch] = max(rates.get(batch, 0.0), launcher.throughput(config) or 0.0)
    fastest = max(rates.values())
    knee = max(DEFAULT, min(batch for batch, rate in rates.items() if rate >= ENOUGH * fastest))
    rate = launcher.throughput(Config(values=answer.params))
    assert rate is not None, "what was recommended ran"
    searched = [one.config.global_batch_size() for one in view.trials if one.purpose == "search"]
    if told.verbose:
        told_batches = [(one.purpose[:3], one.config.global_batch_size()) for one in view.trials]
        print(
            f"{seed} {noise_seed}: knee {knee}, answer {answer.global_batch_size}, {rate / fastest:.0%};", told_batches
        )
    return Found(
        batch=answer.global_batch_size, octaves=math.log2(answer.global_batch_size / knee), share=rate / fastest,
        probes=len(searched), beyond=sum(batch > 2 * knee for batch in searched),
        seconds=launcher.clock() / told.budget,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first machine")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--starting", type=float, default=1.5, help="seconds of a probe before it measures")
    parser.add_argument("--like", choices=("fixed-cost", "tabular"), default="fixed-cost")
    parser.add_argument("--verbose", action="store_true", help="print what each search probed")
    told = parser.parse_args()
    seeds = range(told.first, told.first + told.machines)
    pairs = [[search(seed, seed + more, told) for more in (0, OTHER_NOISE)] for seed in seeds]
    found = [one for pair in pairs for one in pair]
    shares = [one.share for one in found]
    means = {field: statistics.fmean(getattr(one, field) for one in found) for field in ("probes", "beyond", "seconds")}
    print("| at the knee | near | share, median | least | below 93 % | same twice | probes | beyond | of the budget |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    print(
        f"| {statistics.fmean(one.octaves == 0 for one in found):.0%} | "
        f"{statistics.fmean(abs(one.octaves) <= 1 for one in found):.0%} | {statistics.median(shares):.1%} | "
        f"{min(shares):.1%} | {sum(share < GOAL for share in shares)} of {len(shares)} | "
        f"{statistics.fmean(len({one.batch for one in pair}) == 1 for pair in pairs):.0%} | {means['probes']:.1f} | "
        f"{means['beyond']:.2f} | {means['seconds']:.2f} |"
    )


if __name__ == "__main__":
    main()
