"""How many probes until the best: our sampler against generic ones and a heuristic, on simulated machines.

    python benchmarks/search_simulated.py [--machines 20] [--seeds 3] [--samplers structured,tpe,...] [--probes 60]
                                          [--space small|large|huge]

Each search begins with a baseline (float32, batch 32 or the largest below that fits, 4 workers). All samplers stand
behind the same guard and know of each probe what a study tells them. A search has hit when it has probed a
configuration that is truly within 5 % of the best that fits; probes that run out of memory count. GP
is slow: `--seeds 1`.

`--space large` has 204,800 configurations: seven more knobs, of which most do nothing on most machines (`huge`: twelve
more, 28 million). A compiled configuration takes a minute more to start.

A probe takes 6 s to start and 3 s to measure or, if longer, 7 cycles of at most two micro-batches ("s"), or
12 optimizer steps ("long s": what probes took before decision 0046). `by-gain` is `structured` that does not know it.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import optuna
import scipy
import simulated_knobs
from msgspec.structs import replace
from numpy.typing import NDArray
from optuna.trial import TrialState
from simulator import DOMAINS, Floats, Machine, Surface

import autotune.knobs
from autotune.core.probe_duration import MEASURING_SECONDS, STEP_UP, ProbeDuration
from autotune.core.records import Config, Value
from autotune.core.results import Failure, Measurement, MemoryPeak, Outcome, ProbeResult, Trial
from autotune.knobs.base import SHORT_CYCLE, Circumstances
from autotune.memory.model import PredictedPeak, calibrated
from autotune.sampler.configurations import Points
from autotune.sampler.encoding import Encoding
from autotune.sampler.grid import Hardware
from autotune.sampler.guard import Guard
from autotune.sampler.names import SamplerName
from autotune.sampler.observation import Observation
from autotune.sampler.optuna import GuardedSampler, make_sampler
from autotune.sampler.space import SearchSpace
from autotune.sampler.structured import Knowledge
from autotune.testing import ENVIRONMENT, FACTS

WITHIN = 0.95
SOON = 20  # probes
OURS_STOP = 30  # probes after which our own runs stop: it has hit by then or never
HEURISTIC, FORETOLD = "doubling", "foretold"  # foretold: `structured` after a shape run
BY_GAIN = "by-gain"
NAMES = (FORETOLD, "structured", BY_GAIN, "tpe", "gp", "random", "grid", HEURISTIC)
STARTING = 6.0  # seconds of a probe before it measures
FORMER_STEPS = 12  # of a probe whose steps are long, before decision 0046: counted with steps of 1.6 s
DURATION = ProbeDuration(fixed_seconds=STARTING, longest_cycle=SHORT_CYCLE)
COMPILING = 60.0  # more of one that compiles
FEWER: dict[str, tuple[Value, ...]] = {  # of the larger spaces
    "batch_size": tuple(2**exponent for exponent in range(3, 13)), "num_workers": (0, 1, 2, 4, 8, 16),
    "gradient_accumulation_steps": (1,),
}  # fmt: skip
EXHAUSTIVE = 300_000  # configurations among which the best is looked for one by one
CLIMBS = 24  # places to climb from where they are more
Shown = tuple[Config, Observation]  # what was probed, and what it showed


@dataclass(frozen=True)
class Run:
    """One search."""

    hit: int | None  # probes until within 5 %
    out_of_memory: int  # probes until the hit, or all
    seconds_per_proposal: float  # of a processor: the machine may be busy
    seconds: float  # of all probes until the hit, or all
    long_seconds: float  # the same, where accumulation is run in full and long steps are many


class Space:
    """All configurations of the simulator, as the product sees them."""

    def __init__(self, size: str = "small") -> None:
        extra = {"small": (), "large": simulated_knobs.LARGE, "huge": simulated_knobs.HUGE}[size]
        simulated_knobs.register(extra)
        self._codes = DOMAINS | {one.name: one.values for one in extra}
        offered = self._codes | (FEWER if extra else {})
        domains = {knob.name: offered.get(knob.name, (knob.default,)) for knob in autotune.knobs.KNOBS}
        circumstances = Circumstances(facts=FACTS, environment=ENVIRONMENT, global_batch=None)
        self.space = SearchSpace(domains, circumstances)
        self.encoding = Encoding(self.space)

    def columns(self, configs: Sequence[Config]) -> dict[str, NDArray[np.int64]]:
        """These configurations as the simulator wants them."""
        return {
            name: np.array([values.index(config[name]) for config in configs], np.int64)
            for name, values in self._codes.items()
        }

    def columns_at(self, points: Points) -> dict[str, NDArray[np.int64]]:
        """The same for many, given by their points."""
        places = {name: {value: place for place, value in enumerate(values)} for name, values in self._codes.items()}
        return self.space.configs.codes(points, places)


class World:
    """One machine and what all configurations of a space do on it."""

    def __init__(self, space: Space, machine: Machine, slower: float = 1.0) -> None:
        self.space, self.machine, self._slower = space, machine, slower
        self._known: dict[Config, Surface] = {}
        self.best = self._best()

    def at(self, config: Config) -> Surface:
        """The truth about one configuration."""
        if config not in self._known:
            self._known[config] = slowed(self.machine.surface(self.space.columns([config])), self._slower)
        return self._known[config]

    def rate(self, config: Config) -> float:
        """Samples/s, also where it does not fit."""
        return float(self.at(config).rate[0])

    def memory(self, config: Config) -> float:
        """Share of the limit."""
        return float(self.at(config).memory[0])

    def tensors(self, config: Config) -> float:
        """The part of it that a shape run sees."""
        return float(self.at(config).tensors[0])

    def probe(self, config: Config, chance: np.random.Generator) -> Observation:
        """What one probe reports."""
        return self.machine.probe(self.at(config), 0, chance)

    def _fitting(self, points: Points) -> Floats:
        found = slowed(self.machine.surface(self.space.columns_at(points)), self._slower)
        return np.where(found.memory <= 1, found.rate, 0.0)

    def _best(self) -> float:
        """The highest rate of a configuration that fits: of all, or of what climbing from many places arrives at."""
        configs = self.space.space.configs
        if len(configs) <= EXHAUSTIVE:
            return max(self._fitting(part).max() for part in np.array_split(configs.sample(EXHAUSTIVE, EXHAUSTIVE), 16))
        best = 0.0
        for point in configs.sample(CLIMBS, CLIMBS):
            rate = -1.0
            while (near := np.concatenate([point[None], configs.near(point.tolist(), 2)])) is not None:
                rates = self._fitting(near)
                if rates.max() <= rate:
                    break
                rate, point = float(rates.max()), near[rates.argmax()]
            best = max(best, rate)
        return best


def baseline(world: World) -> Config:
    """What somebody runs who never thought about it, and that runs."""
    for batch in (32, 16, 8, 4, 2, 1):
        config = world.space.space.complete({"batch_size": batch, "gradient_accumulation_steps": 1, "num_workers": 4})
        if world.memory(config) <= 1 and config in world.space.space.configs:
            return config
    raise AssertionError("every machine holds one sample")


def search(name: str, world: World, seed: int, most: int) -> Run:
    """One search with one sampler on one machine."""
    chance = np.random.default_rng([seed, 7])
    asker = {"grid": _grid, HEURISTIC: _doubling}[name](world.space) if name in ("grid", HEURISTIC) else None
    asker = asker or _optuna(name, world, seed)
    config, out_of_memory, spent, taken = baseline(world), 0, [0.0], np.zeros(2)
    next(asker)
    for number in range(1, most + 1):
        seen = world.probe(config, chance)
        out_of_memory += seen.outcome.out_of_memory
        taken += _probe_seconds(world, config)
        if world.memory(config) <= 1 and world.rate(config) >= WITHIN * world.best:
            return Run(number, out_of_memory, statistics.mean(spent), *taken)
        began = time.process_time()
        try:
            config = asker.send((config, seen))
        except StopIteration:
            break
        spent.append(time.process_time() - began)
    return Run(None, out_of_memory, statistics.mean(spent), *taken)


def compiling(config: Config) -> float:
    """Seconds that a probe compiles."""
    return COMPILING if config.values.get("sim_compile") else 0.0


def _probe_seconds(world: World, config: Config) -> tuple[float, float]:
    """What a probe takes, now and with long steps that are many; one that runs out of memory does so at once."""
    starting = STARTING + compiling(config)
    if world.memory(config) > 1:
        return starting, starting
    step = config.global_batch_size() / world.rate(config)
    micro_batch, accumulation = step / config.gradient_accumulation_steps, config.gradient_accumulation_steps
    return starting - STARTING + DURATION.seconds(micro_batch, accumulation), starting + max(
        MEASURING_SECONDS, FORMER_STEPS * step
    )


def _optuna(name: str, world: World, seed: int) -> Generator[Config, Shown, None]:
    """What an Optuna sampler proposes; is sent (configuration, observation) of what was probed."""
    space = world.space
    guard, trial = Guard(space.space), None
    shape_run = _ShapeRun(world) if name == FORETOLD else None
    plain, longest = cast(SamplerName, "structured" if name in (FORETOLD, BY_GAIN) else name), 0.0
    knowledge = Knowledge(
        shape_run=shape_run.of if shape_run else None,
        probe_duration=None if name == BY_GAIN else lambda: replace(DURATION, most_seconds=STEP_UP * longest),
        compiling_seconds=None if name == BY_GAIN else compiling,
    )
    inner = make_sampler(plain, seed, space.encoding, guard, Hardware(cores=world.machine.cores), knowledge)
    study = optuna.create_study(direction="maximize", sampler=GuardedSampler(inner, space.encoding, guard))
    proposal = space.space.configs[0]
    while True:
        config, seen = yield proposal
        longest = max(longest, _probe_seconds(world, config)[0] - compiling(config))
        guard.learn(Trial(number=0, purpose="search", config=config, result=_result(seen)))
        if shape_run:
            shape_run.learn(config, seen)
        oom = seen.outcome.out_of_memory
        state, value = TrialState.COMPLETE, seen.samples_per_second
        if oom:
            state, value = (TrialState.COMPLETE, 0.0) if name == "gp" else (TrialState.PRUNED, None)
        if trial is None:
            study.add_trial(
                optuna.create_trial(
                    params=space.encoding.params(config), distributions=space.encoding.distributions, value=value,
                    state=state, constraints={"memory": 1.0 if oom else -1.0}, user_attrs=seen.attributes(),
                )
            )  # fmt: skip
        else:
            trial.set_constraint("memory", 1.0 if oom else -1.0)
            for key, attribute in seen.attributes().items():
                trial.set_user_attr(key, attribute)
            study.tell(trial, value, state=state)
        trial = study.ask(space.encoding.distributions)
        proposal = space.encoding.config(trial.params)


class _ShapeRun:
    """What a shape run of the machine says, corrected by every probe as in the product."""

    def __init__(self, world: World) -> None:
        self._world, self._limit = world, world.machine.limit_bytes
        self._peaks: list[tuple[float, float]] = []
        self._calibration = calibrated(0.0, self._peaks)

    def learn(self, config: Config, seen: Observation) -> None:
        """Hold a measured peak against what was foretold."""
        if seen.memory_bytes is not None:
            self._peaks.append((self._world.tensors(config) * self._limit, float(seen.memory_bytes)))
            self._calibration = calibrated(0.0, self._peaks)

    def of(self, config: Config) -> PredictedPeak:
        """What it says of the peak of `config`."""
        return self._calibration.prior_peak(self._world.tensors(config) * self._limit, 0.0, self._limit)


def _grid(space: Space) -> Generator[Config, Shown, None]:
    """A coarse grid in the order of its loops, behind the same guard."""
    coarse = {
        "batch_size": (16, 64, 256, 1024), "num_workers": (2, 4, 8, 16), "gradient_accumulation_steps": (1, 4),
        "amp_dtype": DOMAINS["amp_dtype"], "channels_last": (False, True),
    }  # fmt: skip
    guard = Guard(space.space)
    probed, seen = yield space.space.configs[0]
    for values in itertools.product(*coarse.values()):
        guard.learn(Trial(number=0, purpose="search", config=probed, result=_result(seen)))
        config = space.space.complete(dict(zip(coarse, values, strict=True)))
        if guard.admits(config):
            probed, seen = yield config


def _doubling(space: Space) -> Generator[Config, Shown, None]:
    """What people do by hand: change one thing at a time, double what can be doubled for as long as it gains."""
    probed, seen = yield space.space.configs[0]
    best, rate = dict(probed.values), seen.samples_per_second or 0.0
    tried, gained = {probed}, True
    while gained:
        gained = False
        for change in _changes:
            while (values := change(best)) and (config := space.space.complete(values)) not in tried:
                tried.add(config)
                _, seen = yield config
                if (seen.samples_per_second or 0.0) < 1.02 * rate:
                    break
                best, rate, gained = values, seen.samples_per_second or 0.0, True


def _scaled(name: str, factor: float) -> Callable[[dict[str, Value]], dict[str, Value] | None]:
    def change(values: dict[str, Value]) -> dict[str, Value] | None:
        scaled = int(float(values[name] or 0) * factor)
        return {**values, name: scaled} if scaled in DOMAINS[name] and scaled != values[name] else None

    return change


def _switched(name: str, value: Value) -> Callable[[dict[str, Value]], dict[str, Value] | None]:
    return lambda values: {**values, name: value}


_changes = (
    _scaled("batch_size", 2), _switched("amp_dtype", "bfloat16"), _switched("amp_dtype", "float16"),
    _scaled("batch_size", 2), _scaled("num_workers", 2), _switched("channels_last", True),
    _scaled("gradient_accumulation_steps", 2), _scaled("num_workers", 0.5),
)  # fmt: skip


def _result(seen: Observation) -> ProbeResult:
    """As much of a probe's result as the guard looks at."""
    if seen.outcome is not Outcome.OK:
        return ProbeResult(outcome=seen.outcome, failure=Failure(phase="warm-up", message="", evidence=""))
    measurement = Measurement(
        samples=(1,), step_seconds=(1.0,), loader_wait_seconds=(0.0,), losses=(1.0,), warmup_seconds=(),
        memory=MemoryPeak(process_bytes=1, reserved_bytes=seen.memory_bytes),
    )  # fmt: skip
    return ProbeResult(outcome=Outcome.OK, measurement=measurement)


def slowed(surface: Surface, factor: float) -> Surface:
    """The same machine, on which everything takes so many times as long."""
    rates = (surface.rate / factor, surface.compute_rate / factor, surface.loader_rate / factor)
    return Surface(*rates, surface.memory, surface.tensors)


def table(names: list[str], machines: int, seeds: int, most: int, slower: float, size: str) -> None:
    """Run it all and print one line per sampler and set."""
    space = Space(size)
    versions = f"optuna {optuna.__version__}, numpy {np.__version__}, scipy {scipy.__version__}"
    print(
        f"{len(space.space.configs):,} configurations, {machines} machines a set, {seeds} seeds; {versions}, ", end=""
    )
    print(f"Python {platform.python_version()} on {platform.machine()}\n")
    print(f"{'sampler':<12}{'set':<15}{'median':>7}{'90 %':>7}{'<= 20':>7}{'OOM':>7}{'ms':>7}{'runs':>6}", end="")
    print(f"{'s':>8}{'90 %':>8}{'long s':>8}{'90 %':>8}")
    for name in names:
        for misspecified in (False, True):
            runs = []
            for number in range(machines):
                world = World(space, Machine(number, misspecified=misspecified), slower)
                limit = min(most, OURS_STOP) if name in ("structured", BY_GAIN, FORETOLD) else most
                runs += [search(name, world, seed, limit) for seed in range(seeds)]
            print(_line(name, "misspecified" if misspecified else "well-specified", runs, most), flush=True)


def _line(name: str, kind: str, runs: list[Run], most: int) -> str:
    hits = np.array([run.hit or most + 1 for run in runs])
    median, tail = (f"{probes:.0f}" if probes <= most else f"> {most}" for probes in np.quantile(hits, (0.5, 0.9)))
    soon = sum(run.hit is not None and run.hit <= SOON for run in runs) / len(runs)
    lost = statistics.mean(run.out_of_memory for run in runs)
    spent = 1000 * statistics.median(run.seconds_per_proposal for run in runs)
    taken = np.array([(run.seconds, run.long_seconds) for run in runs])
    now, long = (np.quantile(column, (0.5, 0.9)) for column in taken.T)
    seconds = "".join(f"{value:>8.0f}" for value in (*now, *long))
    return f"{name:<12}{kind:<15}{median:>7}{tail:>7}{soon:>7.0%}{lost:>7.1f}{spent:>7.0f}{len(runs):>6}{seconds}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=20, help="of each set")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--probes", type=int, default=60, help="at most, per search")
    parser.add_argument("--slower", type=float, default=1.0, help="times as long as micro-batches of 3 to 30 ms")
    parser.add_argument("--space", choices=("small", "large", "huge"), default="small")
    parser.add_argument("--samplers", default=",".join(NAMES))
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    table(
        arguments.samplers.split(","),
        arguments.machines,
        arguments.seeds,
        arguments.probes,
        arguments.slower,
        arguments.space,
    )


if __name__ == "__main__":
    main()
