"""How many changes of an answer are worth nothing, and what it loses to the best: with and without the ablation.

    python benchmarks/useless_changes.py [--machines 40] [--budget 60] [--noise 0.01] [--starting 0.3] [--batch-norm]
                                         [--malloc]

Whole searches on simulated machines in simulated time: exploration, confirmation, ablation and choice are ours.
A machine draws what autocast, layout, workers, micro-batch and a fixed cost per step are worth; each of them is worth
nothing on about half of the machines, and threads and wait policy on all of them. A change of the answer is useless if
the answer without it is truly slower by less than 2 %. Regret is how much slower the answer is than the truly best
configuration of the space. Both kinds of search have the same seeds and the same time; the one without ablation
confirms for longer.

With `--batch-norm` the models have BatchNorm, the baseline is 16 four times, and another micro-batch is worth nothing
on a third of the machines, and up to 30 % on the others. Each machine is searched twice with the ablation, with other
noise, and a second table tells what became of the micro-batch.

With `--malloc` a malloc that keeps memory is searched, too. It makes computing 25 to 35 % faster on half of the
machines, and nothing on the others; no page faults are counted, so that rounds alone can show it. A last line tells
what became of it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from dataclasses import replace as replace_machine
from pathlib import Path
from unittest import mock

from msgspec.structs import replace

from autotune.context.budget import TimeBudget
from autotune.context.reporter import SilentReporter
from autotune.core.records import Config, Limit, OptimizerFacts
from autotune.knobs.changes import BATCH_KNOBS, changes_between
from autotune.preparation.settings import Settings
from autotune.sampler.space import build
from autotune.study.view import load_view
from autotune.testing import ENVIRONMENT, FACTS, FakeLauncher
from autotune.testing.machine import Machine
from autotune.tuning import engine

UPDATE, MALLOC = "fused_optimizer", "malloc"
USELESS = 0.02  # gain below which a change is not worth making
CPU = replace(
    ENVIRONMENT, device="cpu", device_name="Simulated CPU", usable_cores=4, default_threads=4, capability=None,
    native_dtypes=("bfloat16",),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Keeping(Machine):
    """A machine on which a malloc that keeps memory gains something by itself."""

    kept_factor: float = 1.0  # of computing, with that malloc

    def computing_seconds(self, config: Config) -> float:
        """Return the seconds to compute the gradients of one optimizer step."""
        return super().computing_seconds(config) * (self.kept_factor if config.values.get(MALLOC) else 1.0)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one search came to."""

    changes: int
    useless: int
    untested: int
    regret: float
    seconds: float  # over what was asked
    probes: int
    micro_batch: int
    worth: float  # of the micro-batch that it has, over the baseline's with all else alike
    missed: float  # what another micro-batch would have gained
    keeps: bool  # memory, by malloc
    keeping_gains: bool


def machine(seed: int, noise: float, *, batch_norm: bool = False) -> tuple[Machine, dict[str, int]]:
    """A machine, and the baseline of its user: batch 64, or 16 four times, which it is with `batch_norm`."""
    chance = random.Random(seed)
    sample, half = 0.0004, chance.uniform(0.4, 0.9) if chance.random() < 0.5 else chance.uniform(0.99, 1.1)
    layout = chance.uniform(0.75, 0.95) if chance.random() < 0.5 else 1.0
    fixed = chance.uniform(0.002, 0.01) if chance.random() < 0.5 else 1e-5
    loading = chance.uniform(0.0003, 0.002) if chance.random() < 0.5 else 1e-7
    drawn = Machine(
        fixed_seconds={None: fixed, "bfloat16": fixed},
        per_sample_seconds={None: sample, "bfloat16": sample * half},
        channels_last_factor={None: layout, "bfloat16": layout},
        sample_loading_seconds=loading, cores=4, noise_between_probes=noise,
    )  # fmt: skip
    micro = chance.choice((64, 16))
    if batch_norm:
        gain, micro = max(0.0, chance.uniform(-0.15, 0.3)), 16
        fixed = 64 * sample * gain / (3 - gain)  # so much does 64 once gain over 16 four times
        drawn = replace_machine(drawn, fixed_seconds={None: fixed, "bfloat16": fixed})
    return drawn, {"batch_size": micro, "gradient_accumulation_steps": 64 // micro}


@contextmanager
def without_ablation() -> Iterator[None]:
    """Search as before there was one: no time is kept for it."""
    with (
        mock.patch.object(engine, "ablate", lambda context, confirmed, answer, recommended: answer),
        mock.patch.object(TimeBudget, "ablation_seconds", 0.0),
    ):
        yield


def search(seed: int, told: argparse.Namespace, noise_seed: int = 0) -> Found:
    """One search on one machine."""
    budget, noise = told.budget, told.noise
    drawn, baseline = machine(seed, noise, batch_norm=told.batch_norm)
    # The machine knows no activation checkpointing on a CPU that would be of use: memory does not bind.
    held = {**FACTS.space, "activation_checkpointing": Limit(values=(False,))}
    facts = replace(FACTS, baseline=baseline, space=held, has_batch_norm=told.batch_norm)
    if told.updates:
        del held[UPDATE]
        possible = ("for-loop", "foreach", "fused")
        ways = OptimizerFacts(names=("AdamW",), usual="for-loop", possible=possible, step_share=1.0)
        facts = replace(facts, space=held, optimizer=ways)
    environment = CPU
    if told.malloc:
        del held[MALLOC]
        facts, environment = replace(facts, space=held), replace(CPU, mallocs=("glibc",))
        chance = random.Random(f"malloc {seed}")
        factor = 1 / chance.uniform(1.25, 1.35) if chance.random() < 0.5 else 1.0
        drawn = Keeping(kept_factor=factor, **{one.name: getattr(drawn, one.name) for one in fields(drawn)})
    starting, noise_seed = {"start": told.starting}, seed + noise_seed
    launcher = FakeLauncher(
        machine=drawn, facts=facts, environment=environment, seed=noise_seed, starting_seconds=starting
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.of(
            study=Path(folder) / "study", target="model.py", time_budget_seconds=budget, seed=noise_seed
        )
        answer = engine.search(settings, launcher, SilentReporter(), launcher.clock, lambda seconds: None)
        request = load_view(Path(folder) / "study").request
    space = build(request.facts, request.environment, request.goal, request.baseline)
    rate, best = (launcher.throughput(one) for one in (Config(values=answer.params), launcher.best(space.configs)))
    assert rate is not None and best is not None, "what was recommended ran"
    useless = 0
    groups = changes_between(answer.baseline, answer.params)
    for names in groups:
        without = Config(values={**answer.params, **{name: answer.baseline[name] for name in names}})
        slower = launcher.throughput(without)
        useless += slower is not None and rate / slower - 1 < USELESS
    others = [one for one in space.configs if not set(changes_between(answer.params, one.values)) - {BATCH_KNOBS}]
    plain = launcher.throughput(launcher.best(one for one in space.configs if one.values[MALLOC] is None))
    before = launcher.throughput(Config(values={**answer.params, **baseline}))
    best_batch = launcher.throughput(launcher.best(others))
    assert before is not None and best_batch is not None and plain is not None, "memory does not bind"
    return Found(
        micro_batch=int(answer.params["batch_size"] or 0), worth=rate / before - 1, missed=best_batch / rate - 1,
        changes=len(groups), useless=useless, regret=1 - rate / best, seconds=launcher.clock() / budget,
        untested=sum(one.ratio is None for one in answer.changes or ()), probes=answer.probes,
        keeps=answer.params[MALLOC] is not None, keeping_gains=best / plain - 1 >= USELESS,
    )  # fmt: skip


def row(name: str, found: list[Found]) -> str:
    """One line of the table."""
    changes, useless = (statistics.fmean(getattr(one, field) for one in found) for field in ("changes", "useless"))
    regrets = sorted(one.regret for one in found)
    ninth = regrets[int(0.9 * len(regrets))]
    return (
        f"| {name} | {changes:.2f} | {useless:.2f} | {useless / max(changes, 1e-9):.0%} | "
        f"{statistics.fmean(one.untested for one in found):.2f} | {statistics.fmean(regrets):.2%} | {ninth:.2%} | "
        f"{statistics.fmean(one.probes for one in found):.0f} | {statistics.fmean(one.seconds for one in found):.2f} |"
    )


def malloc_line(found: list[Found]) -> str:
    """One sentence on what became of malloc."""
    kept = {gains: [one.keeps for one in found if one.keeping_gains is gains] for gains in (True, False)}
    counts = " and ".join(
        f"{sum(own)} of {len(own)} where it gains {what}"
        for own, what in ((kept[True], "2 % or more"), (kept[False], "less"))
    )
    return f"\nmalloc is recommended on {counts}."


def micro_batch_rows(runs: list[list[Found]]) -> Iterator[str]:
    """A table of what became of the micro-batch; `runs` of the same machines."""
    pairs, found = list(zip(*runs, strict=True)), [one for run in runs for one in run]
    changed, held = ([one for one in found if (one.worth != 0) == is_changed] for is_changed in (True, False))
    yield "| same micro-batch in both | changed | for less than 2 % | less than 5 % | held for 5 % or more | 10 % |"
    yield "| --- | --- | --- | --- | --- | --- |"
    yield (
        f"| {statistics.fmean(len({one.micro_batch for one in pair}) == 1 for pair in pairs):.0%} | {len(changed)} of "
        f"{len(found)} | {sum(one.worth < 0.02 for one in changed)} | {sum(one.worth < 0.05 for one in changed)} | "
        f"{sum(one.missed >= 0.05 for one in held)} | {sum(one.missed >= 0.1 for one in held)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="seed of the first machine")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--starting", type=float, default=0.3, help="seconds of a probe before it measures")
    parser.add_argument("--updates", action="store_true", help="search the optimizer's update, too: worth nothing here")
    parser.add_argument("--only-with", action="store_true", help="leave out the searches without ablation")
    parser.add_argument("--batch-norm", action="store_true", help="models with BatchNorm; each machine twice")
    parser.add_argument("--malloc", action="store_true", help="search a malloc that gains 25 to 35 %% on half of them")
    told = parser.parse_args()
    print(
        f"{told.machines} machines from {told.first} on, {told.budget:g} s each, noise {told.noise:.0%}, "
        f"{told.starting:g} s to start a probe\n"
    )
    print("| search | changes | useless ones | share | untested | regret, mean | 9 of 10 | probes | of the budget |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    seeds = range(told.first, told.first + told.machines)
    if told.batch_norm:
        runs = [[search(seed, told, noise_seed) for seed in seeds] for noise_seed in (0, 1000)]
        print(row("with ablation", [one for run in runs for one in run]), "\n", *micro_batch_rows(runs), sep="\n")
        return
    if not told.only_with:
        with without_ablation():
            before = [search(seed, told) for seed in seeds]
        print(row("without ablation", before), flush=True)
    after = [search(seed, told) for seed in seeds]
    print(row("with ablation", after))
    if told.malloc:
        print(malloc_line(after))


if __name__ == "__main__":
    main()
