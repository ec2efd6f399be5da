"""Up to 64 workers: what parallel proposals cost at equal probes, and what the queue bears.

    python -m benchmarks.fleet_simulated [--workers 1,4,8,16,64] [--probes 60] [--machines 10] [--seeds 1] [--load]

From the root. The simulated machines are those of `search_simulated.py`: the model-based sampler, whose pending probes
are trials that run, proposes whenever one of the workers is free. A repeat is a configuration that was proposed while
it was probed, or had been. Regret is what the best probed configuration lacks to the best that fits, after as many
probes. Seconds are simulated: what a probe takes there, and nothing for a proposal, whose own time is told apart.

`--load` asks a real PostgreSQL server (Debian: apt install postgresql) as many workers as there are to take and store
jobs of 64 KiB, each of a second: ten times as often as probes do.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import platform
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import optuna
from optuna.trial import TrialState

sys.path.insert(0, str(Path(__file__).parent))  # where it finds the simulator, as `search_simulated.py` does

import search_simulated as alone
from simulator import Machine

from autotune.core.records import Config
from autotune.core.results import Trial
from autotune.sampler.grid import Hardware
from autotune.sampler.guard import Guard
from autotune.sampler.optuna import GuardedSampler, make_sampler
from autotune.sampler.structured import Knowledge

LOOKED_AT = (16, 30)  # probes
TOLD_PROBES = 100  # between two lines on standard error: a search of 2,000 takes long
LOAD_SECONDS, ORDER_SECONDS, LOG_BYTES = 20.0, 1.0, 2**16


@dataclass(frozen=True)
class Run:
    """One search of a simulated fleet."""

    regrets: tuple[float, ...]  # after so many probes as in `LOOKED_AT`, and after all
    repeats: int
    seconds: float  # simulated, until the last probe ended
    hit_seconds: float | None  # the same until one within 5 % of the best had ended
    proposal_seconds: tuple[float, ...]  # of a processor, for each proposal


def search(world: alone.World, seed: int, workers: int, probes: int) -> Run:
    """One search with so many workers."""
    space, chance = world.space, np.random.default_rng([seed, 7])
    guard = Guard(space.space)
    knowledge = Knowledge(compiling_seconds=alone.compiling)
    inner = make_sampler("structured", seed, space.encoding, guard, Hardware(cores=world.machine.cores), knowledge)
    study = optuna.create_study(direction="maximize", sampler=GuardedSampler(inner, space.encoding, guard))
    rates: list[float] = []
    begun: set[Config] = set()
    spent: list[float] = []
    running: list[tuple[float, int, Config, optuna.Trial]] = []
    clock, repeats, hit = 0.0, 0, None
    first = alone.baseline(world)
    _learn(world, study, guard, first, chance, None)  # the baseline runs alone
    rates.append(_useful(world, first))
    begun.add(first)
    for number in itertools.count(1):
        while len(running) < workers and len(begun) < probes:
            began = time.process_time()
            trial = study.ask(space.encoding.distributions)
            spent.append(time.process_time() - began)
            config = space.encoding.config(trial.params)
            repeats += config in begun
            begun.add(config)
            heapq.heappush(
                running, (clock + alone._probe_seconds(world, config)[0], number * 1000 + len(running), config, trial)
            )
        if not running:
            break
        clock, _, config, trial = heapq.heappop(running)
        _learn(world, study, guard, config, chance, trial)
        rates.append(_useful(world, config))
        if len(rates) % TOLD_PROBES == 0:
            print(f"{len(rates)} of {probes} probes, proposals took {sum(spent):.0f} s", file=sys.stderr, flush=True)
        if hit is None and rates[-1] >= alone.WITHIN * world.best:
            hit = clock
    regrets = tuple(1 - max(rates[:count]) / world.best for count in (*LOOKED_AT, len(rates)))
    return Run(regrets, repeats, clock, hit, tuple(spent))


def _useful(world: alone.World, config: Config) -> float:
    return world.rate(config) if world.memory(config) <= 1 else 0.0


def _learn(
    world: alone.World, study: optuna.Study, guard: Guard, config: Config, chance: np.random.Generator,
    trial: optuna.Trial | None,
) -> None:  # fmt: skip
    space, seen = world.space, world.probe(config, chance)
    guard.learn(Trial(number=0, purpose="search", config=config, result=alone._result(seen)))
    oom = seen.outcome.out_of_memory
    state = TrialState.PRUNED if oom else TrialState.COMPLETE
    value = None if oom else seen.samples_per_second
    if trial is None:
        study.add_trial(
            optuna.create_trial(
                params=space.encoding.params(config), distributions=space.encoding.distributions, value=value,
                state=state, constraints={"memory": 1.0 if oom else -1.0}, user_attrs=seen.attributes(),
            )
        )  # fmt: skip
        return
    trial.set_constraint("memory", 1.0 if oom else -1.0)
    for key, attribute in seen.attributes().items():
        trial.set_user_attr(key, attribute)
    study.tell(trial, value, state=state)


def load(workers: int) -> str:
    """What a real server and one search make of so many workers: a line of the table."""
    from autotune.core import codec
    from autotune.core.requests import ProbeRequest
    from autotune.fleet.database import Database
    from autotune.fleet.records import QueuedStudy, Timing
    from autotune.fleet.search_queue import SearchQueue
    from autotune.fleet.worker_queue import WorkerQueue
    from autotune.testing import ENVIRONMENT
    from autotune.testing.launcher_contract import example
    from tests.postgres import Server

    server, timing, ended = Server(), Timing(), threading.Event()
    url = server.new_database()
    queue = SearchQueue(url, "load", timing)
    queue.open(QueuedStudy(name="load", target="ok", target_digest=""))
    body, log = codec.encode(example(ProbeRequest, "ok")).decode(), bytes(LOG_BYTES)
    waits: list[float] = []

    def work(number: int) -> None:
        own = WorkerQueue(Database(url, patience_seconds=60), "load")
        own.join(uuid4(), str(number), "here", ENVIRONMENT)
        while not ended.is_set():
            job = own.take()
            if job is None:
                time.sleep(timing.poll)
            elif not ended.wait(ORDER_SECONDS):
                own.is_mine(job)
                own.store(job, body, log)
        own.leave()

    def ask(number: int) -> None:
        while not ended.is_set():
            token, began = uuid4(), time.monotonic()
            queue.put(token, "probes/0000", body, wanted=None, patience=600)
            while queue.wait(token) is None and not ended.is_set():
                pass
            waits.append(time.monotonic() - began - ORDER_SECONDS)
            queue.forget(token)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(workers) for one in (work, ask)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    waits.clear()
    before, began = _committed(server), time.monotonic()
    time.sleep(LOAD_SECONDS)
    count, seconds, delays = _committed(server) - before, time.monotonic() - began, sorted(waits)
    ended.set()
    for thread in threads:
        thread.join()
    queue.end(for_good=True)
    server.close()
    median, most = statistics.median(delays), delays[int(0.95 * (len(delays) - 1))]
    return f"| {workers} | {len(delays) / seconds:.0f} | {count / seconds:.0f} | {median:.2f} s | {most:.2f} s |"


def _committed(server: object) -> int:
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as connection:  # type: ignore[attr-defined]
        row = connection.execute("SELECT sum(xact_commit) FROM pg_stat_database").fetchone()
    return int(row[0]) if row else 0


def _row(workers: int, runs: Sequence[Run]) -> str:
    def percent(values: Sequence[float]) -> str:
        return f"{100 * statistics.fmean(values):.1f} %"

    regrets = [percent([run.regrets[at] for run in runs]) for at in range(len(LOOKED_AT) + 1)]
    hits = [run.hit_seconds for run in runs if run.hit_seconds is not None]
    hit = f"{statistics.median(hits):.0f} s" if len(hits) > len(runs) / 2 else "never"
    proposals = [one for run in runs for one in run.proposal_seconds]
    latest = [one for run in runs for one in run.proposal_seconds[-workers:]]
    cells = (
        str(workers), str(sum(run.repeats for run in runs)), *regrets, hit, f"{len(hits)} of {len(runs)}",
        f"{statistics.median([run.seconds for run in runs]):.0f} s",
        f"{1000 * statistics.median(proposals):.0f} / {1000 * statistics.median(latest):.0f} ms",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,4,8,16,64")
    parser.add_argument("--probes", type=int, default=60)
    parser.add_argument("--machines", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--load", action="store_true", help="the queue instead of the sampler")
    asked = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    counts = [int(one) for one in asked.workers.split(",")]
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, Optuna {optuna.__version__}"
    )
    if asked.load:
        print("| workers | jobs/s | transactions/s | delay, median | delay, 95 % |\n| --- | --- | --- | --- | --- |")
        for workers in counts:
            print(load(workers), flush=True)
        return
    space = alone.Space()
    worlds = [alone.World(space, Machine(number, misspecified=number % 2 == 1)) for number in range(asked.machines)]
    after = " | ".join(f"regret after {count}" for count in (*LOOKED_AT, "all"))
    print(f"{asked.probes} probes, {len(worlds)} machines, half of them misspecified, {asked.seeds} seeds")
    print(f"| workers | repeats | {after} | first within 5 % | found by | all probes | proposal, median / last |")
    print(f"|{' --- |' * 9}")
    for workers in counts:
        runs = [search(world, seed, workers, asked.probes) for world in worlds for seed in range(asked.seeds)]
        print(_row(workers, runs), flush=True)


if __name__ == "__main__":
    main()
