"""How many probes until the best: our sampler against generic ones and a heuristic, on simulated machines.

    python benchmarks/search_simulated.py [--machines 20] [--seeds 3] [--samplers structured,tpe,...] [--probes 60]

Each search begins with a baseline (float32, batch 32 or the largest below that fits, 4 workers). All samplers stand
behind the same guard and know of each probe what a study tells them. A search has hit when it has probed a
configuration that is truly within 5 % of the best that fits; probes that run out of memory count. GP
is slow: `--seeds 1`.

A probe takes 6 s to start and 3 s to measure or, if longer, 7 cycles of at most two micro-batches ("s"), or
12 optimizer steps ("long s": what probes took before decision 0046). `by-gain` is `structured` that does not know it.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import statistics
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import cast

import numpy as np
import optuna
import scipy
from msgspec.structs import replace
from optuna.trial import TrialState
from simulator import DOMAINS, Machine, Surface

from autotune.core.probe_duration import MEASURING_SECONDS, STEP_UP, ProbeDuration
from autotune.core.records import Config, Value
from autotune.core.results import Failure, Measurement, MemoryPeak, Outcome, ProbeResult, Trial
from autotune.knobs import KNOBS
from autotune.knobs.base import SHORT_CYCLE, Circumstances
from autotune.memory.model import PredictedPeak, calibrated
from autotune.sampler.grid import Hardware
from autotune.sampler.guard import Guard
from autotune.sampler.names import SamplerName
from autotune.sampler.observation import Observation
from autotune.sampler.optuna import Encoding, GuardedSampler, make_sampler
from autotune.sampler.space import SearchSpace
from autotune.testing import ENVIRONMENT, FACTS

WITHIN = 0.95
SOON = 20  # probes
OURS_STOP = 30  # probes after which our own runs stop: it has hit by then or never
HEURISTIC, FORETOLD = "doubling", "foretold"  # foretold: `structured` after a dry run
BY_GAIN = "by-gain"
NAMES = (FORETOLD, "structured", BY_GAIN, "tpe", "gp", "random", "grid", HEURISTIC)
STARTING = 6.0  # seconds of a probe before it measures
FORMER_STEPS = 12  # of a probe whose steps are long, before decision 0046: counted with steps of 1.6 s
DURATION = ProbeDuration(fixed_seconds=STARTING, longest_cycle=SHORT_CYCLE)
Shown = tuple[int, Observation]  # the row that was probed, and what it showed


@dataclass(frozen=True)
class Run:
    """One search."""

    hit: int | None  # probes until within 5 %
    out_of_memory: int  # probes until the hit, or all
    seconds_per_proposal: float
    seconds: float  # of all probes until the hit, or all
    long_seconds: float  # the same, where accumulation is run in full and long steps are many


class Space:
    """All configurations of the simulator, as the product sees them."""

    def __init__(self) -> None:
        domains = {knob.name: DOMAINS.get(knob.name, (knob.default,)) for knob in KNOBS}
        facts = FACTS
        self.space = SearchSpace(domains, Circumstances(facts=facts, environment=ENVIRONMENT, global_batch=None))
        self.encoding = Encoding(self.space)
        self.rows = {config: row for row, config in enumerate(self.space.configs)}
        self.columns = {
            name: np.array([values.index(config[name]) for config in self.space.configs])
            for name, values in DOMAINS.items()
        }

    def row(self, **values: Value) -> int:
        """Where the configuration with these values is."""
        return self.rows[self.space.complete(values)]


def baseline(space: Space, surface: Surface) -> int:
    """What somebody runs who never thought about it, and that runs."""
    for batch in (32, 16, 8, 4, 2, 1):
        row = space.row(batch_size=batch, gradient_accumulation_steps=1, num_workers=4)
        if surface.memory[row] <= 1:
            return row
    raise AssertionError("every machine holds one sample")


def search(name: str, space: Space, machine: Machine, surface: Surface, seed: int, most: int) -> Run:
    """One search with one sampler on one machine."""
    chance = np.random.default_rng([seed, 7])
    asker = {"grid": _grid, HEURISTIC: _doubling}[name](space) if name in ("grid", HEURISTIC) else None
    asker = asker or _optuna(name, space, machine, surface, seed)
    row, out_of_memory, spent, taken = baseline(space, surface), 0, [0.0], np.zeros(2)
    next(asker)
    for number in range(1, most + 1):
        seen = machine.probe(surface, row, chance)
        out_of_memory += seen.outcome.out_of_memory
        taken += _probe_seconds(space, surface, row)
        if surface.memory[row] <= 1 and surface.rate[row] >= WITHIN * surface.best:
            return Run(number, out_of_memory, statistics.mean(spent), *taken)
        began = time.perf_counter()
        try:
            row = asker.send((row, seen))
        except StopIteration:
            break
        spent.append(time.perf_counter() - began)
    return Run(None, out_of_memory, statistics.mean(spent), *taken)


def _probe_seconds(space: Space, surface: Surface, row: int) -> tuple[float, float]:
    """What a probe takes, now and with long steps that are many; one that runs out of memory does so at once."""
    if surface.memory[row] > 1:
        return STARTING, STARTING
    config = space.space.configs[row]
    step = config.global_batch_size() / surface.rate[row]
    micro_batch, accumulation = step / config.gradient_accumulation_steps, config.gradient_accumulation_steps
    return DURATION.seconds(micro_batch, accumulation), STARTING + max(MEASURING_SECONDS, FORMER_STEPS * step)


def _optuna(name: str, space: Space, machine: Machine, surface: Surface, seed: int) -> Generator[int, Shown, None]:
    """Rows that an Optuna sampler proposes; is sent (row, observation) of what was probed."""
    guard, trial = Guard(space.space), None
    dry = _DryRun(space, machine) if name == FORETOLD else None
    plain, longest = cast(SamplerName, "structured" if name in (FORETOLD, BY_GAIN) else name), 0.0
    inner = make_sampler(
        plain, seed, space.encoding, guard, Hardware(cores=machine.cores), dry.of if dry else None,
        probe_duration=None if name == BY_GAIN else lambda: replace(DURATION, most_seconds=STEP_UP * longest),
    )  # fmt: skip
    study = optuna.create_study(direction="maximize", sampler=GuardedSampler(inner, space.encoding, guard))
    row = -1
    while True:
        probed, seen = yield row
        config = space.space.configs[probed]
        longest = max(longest, _probe_seconds(space, surface, probed)[0])
        guard.learn(Trial(number=0, purpose="search", config=config, result=_result(seen)))
        if dry:
            dry.learn(probed, seen)
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
        row = space.rows[space.encoding.config(trial.params)]


class _DryRun:
    """What a dry run of the machine says, corrected by every probe as in the product."""

    def __init__(self, space: Space, machine: Machine) -> None:
        self._rows, self._limit = space.rows, machine.limit_bytes
        self._tensors = machine.surface(space.columns).tensors * self._limit
        self._peaks: list[tuple[float, float]] = []
        self._calibration = calibrated(0.0, self._peaks)

    def learn(self, row: int, seen: Observation) -> None:
        """Hold a measured peak against what was foretold."""
        if seen.memory_bytes is not None:
            self._peaks.append((float(self._tensors[row]), float(seen.memory_bytes)))
            self._calibration = calibrated(0.0, self._peaks)

    def of(self, config: Config) -> PredictedPeak:
        """What it says of the peak of `config`."""
        predicted = float(self._tensors[self._rows[config]])
        return self._calibration.prior_peak(predicted, 0.0, self._limit)


def _grid(space: Space) -> Generator[int, Shown, None]:
    """A coarse grid in the order of its loops, behind the same guard."""
    coarse = {
        "batch_size": (16, 64, 256, 1024), "num_workers": (2, 4, 8, 16), "gradient_accumulation_steps": (1, 4),
        "amp_dtype": DOMAINS["amp_dtype"], "channels_last": (False, True),
    }  # fmt: skip
    guard = Guard(space.space)
    probed, seen = yield -1
    for values in itertools.product(*coarse.values()):
        guard.learn(Trial(number=0, purpose="search", config=space.space.configs[probed], result=_result(seen)))
        row = space.row(**dict(zip(coarse, values, strict=True)))
        if guard.admits(space.space.configs[row]):
            probed, seen = yield row


def _doubling(space: Space) -> Generator[int, Shown, None]:
    """What people do by hand: change one thing at a time, double what can be doubled for as long as it gains."""
    (probed, seen) = yield -1
    best, rate = dict(space.space.configs[probed].values), seen.samples_per_second or 0.0
    tried, gained = {probed}, True
    while gained:
        gained = False
        for change in _changes:
            while (values := change(best)) and (row := space.row(**values)) not in tried:
                tried.add(row)
                _, seen = yield row
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


def table(names: list[str], machines: int, seeds: int, most: int, slower: float) -> None:
    """Run it all and print one line per sampler and set."""
    space = Space()
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
                machine = Machine(number, misspecified=misspecified)
                surface = slowed(machine.surface(space.columns), slower)
                limit = min(most, OURS_STOP) if name in ("structured", BY_GAIN, FORETOLD) else most
                runs += [search(name, space, machine, surface, seed, limit) for seed in range(seeds)]
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
    parser.add_argument("--samplers", default=",".join(NAMES))
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    table(arguments.samplers.split(","), arguments.machines, arguments.seeds, arguments.probes, arguments.slower)


if __name__ == "__main__":
    main()
