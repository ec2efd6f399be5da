"""Does a fleet survive kill -9 of its workers at any moment, and restarts of its database? Yes or no, with counts.

    python -m benchmarks.fleet_soak [--kills 50] [--restarts 2] [--workers 4] [--seed 0] [--search]     from the root

A real PostgreSQL server, real workers in processes of their own, and probes that are processes of their own but cost
little: `tests/faults/faulty_child.py`, half a second each. A search with a launcher of the product asks for probes
until all kills have happened, and as many as there are workers at once. A worker that was killed is started again, as a
supervisor would. Afterwards: every probe must have one result, none may have been run twice at once, none may be left
in the queue, no process may be left, and the search must have ended.

With `--search` a whole search is disturbed in this way, whose probes take two seconds of a simulated machine, so that
the truth is known; then the same search runs in peace, and both recommendations are compared on that machine.
"""

from __future__ import annotations

import argparse
import platform
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from threading import Event

import psutil
from msgspec.structs import replace

from autotune.context.reporter import SilentReporter
from autotune.core import codec
from autotune.core.records import Config
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome, ProbeResult
from autotune.fleet.launcher import FleetLauncher
from autotune.fleet.records import QueuedStudy
from autotune.launch.base import RESULT
from autotune.preparation.settings import Settings
from autotune.study.recommendation import Recommendation
from autotune.targets.source import digest_of
from autotune.testing import FakeLauncher
from autotune.testing.launcher_contract import example
from autotune.tuning.engine import search
from tests.fleet.fleet import QUICK, Fleet, until
from tests.postgres import Server

MOST_PAUSE_SECONDS = 3.0  # between two kills
PROBE = example(ProbeRequest, "measure")
PROBES, PROBE_SECONDS = 60, 2.0  # of a whole search; long enough that all kills happen before it ends
WITHIN = 0.95  # of the throughput that the search in peace reaches: its own noise (tests/fleet/test_whole_search.py)


@dataclass
class Tally:
    """What happened."""

    kills: int = 0
    in_probes: int = 0  # of these kills, while the worker ran a probe
    restarts: int = 0
    asked: int = 0  # probes
    answered: Counter[Outcome] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)  # probes without a result
    twice_at_once: list[str] = field(default_factory=list)
    again: int = 0  # probes that were begun anew because their worker was killed
    pending: int = 0  # left in the queue
    orphans: int = 0  # processes
    seconds: float = 0.0  # from the first probe to the last kill
    pids: set[int] = field(default_factory=set)  # of all workers
    answers: tuple[str, ...] = ()  # of the disturbed search and of the one in peace
    reached: float | None = None  # the true throughput of the first answer over that of the second

    @property
    def is_sound(self) -> bool:
        """Whether nothing went wrong."""
        is_as_fast = self.reached is None or self.reached >= WITHIN
        return is_as_fast and not (self.lost or self.twice_at_once or self.pending or self.orphans)

    def table(self) -> str:
        """One line per count."""
        rows = (
            ("kill -9 of a worker", f"{self.kills}, {self.in_probes} of them during a probe"),
            ("restarts of the database", self.restarts),
            ("probes asked for", self.asked),
            ("answers", ", ".join(f"{number} {outcome}" for outcome, number in self.answered.most_common())),
            ("begun anew", self.again),
            ("lost", ", ".join(self.lost) or 0),
            ("run twice at once", ", ".join(self.twice_at_once) or 0),
            ("left in the queue", self.pending),
            ("processes left", self.orphans),
            ("seconds", f"{self.seconds:.0f}"),
        )
        if self.reached is not None:
            disturbed, peaceful = self.answers
            rows += (
                ("recommended", disturbed),
                ("recommended in peace", peaceful),
                ("true throughput, of that in peace", f"{self.reached:.1%}"),
            )
        return "\n".join(f"| {name} | {value} |" for name, value in (("", ""), ("---", "---"), *rows))


def soak(server: Server, folder: Path, *, kills: int, restarts: int, workers: int, seed: int) -> Tally:
    """Kill workers at random while probes are asked for, and say what became of these."""
    names = names_of(workers)
    with Fleet(server, folder) as fleet:
        for name in names:
            fleet.worker(name)
        launcher, numbers, is_over = fleet.launcher(expected=workers), count(), Event()
        (fleet.folder / "study" / "probes").mkdir(parents=True)

        def ask() -> None:
            while not is_over.is_set():
                number = next(numbers)
                place = fleet.place(number)
                workers = launcher.workers()
                one = launcher.on(workers[number % len(workers)].id) if workers else launcher
                one.run(replace(PROBE, config=Config(values={**PROBE.config.values, "batch_size": number + 1})), place)

        with ThreadPoolExecutor(workers) as pool:
            futures: list[Future[None]] = [pool.submit(ask) for _ in names]
            tally = disturb(fleet, names, kills=kills, restarts=restarts, seed=seed)
            is_over.set()
            for future in futures:
                future.result()
        count_probes(tally, fleet, launcher, names)
    count_processes(tally)
    return tally


def soak_search(server: Server, folder: Path, *, kills: int, restarts: int, workers: int, seed: int) -> Tally:
    """Kill workers of a whole search at random, and compare what it recommends with what it does in peace."""
    folder.mkdir()
    names = names_of(workers)
    with simulated_fleet(server, folder / "disturbed", names) as fleet, ThreadPoolExecutor(1) as pool:
        launcher, future = begin_search(pool, fleet, workers)
        tally = disturb(fleet, names, kills=kills, restarts=restarts, seed=seed, is_over=future.done)
        disturbed = future.result()
        count_probes(tally, fleet, launcher, names)
    count_processes(tally)
    with simulated_fleet(server, folder / "peace", names) as fleet, ThreadPoolExecutor(1) as pool:
        peaceful = begin_search(pool, fleet, workers)[1].result()
    rates = [FakeLauncher().throughput(Config(values=one.params)) or 0.0 for one in (disturbed, peaceful)]
    tally.reached = rates[0] / rates[1]
    tally.answers = tuple(
        ", ".join(f"{name} {value}" for name, value in one.params.items() if value != one.baseline[name])
        for one in (disturbed, peaceful)
    )
    return tally


def names_of(workers: int) -> list[str]:
    return [f"worker{number}" for number in range(workers)]


def simulated_fleet(server: Server, folder: Path, names: list[str]) -> Fleet:
    """Start workers of one simulated machine."""
    fleet = Fleet(server, folder)
    fleet.cwd = folder
    (folder / "model.py").write_text("def model(): ...\n")
    for name in names:
        fleet.worker(name, simulated=str(PROBE_SECONDS))
    return fleet


def begin_search(pool: Executor, fleet: Fleet, workers: int) -> tuple[FleetLauncher, Future[Recommendation]]:
    target = str(fleet.folder / "model.py")
    study = QueuedStudy(name="study", target=target, target_digest=digest_of(target))
    launcher = fleet.launcher(expected=workers, study=study)
    asked = Settings(target=target, study=fleet.folder / "study", probes=PROBES, time_budget_seconds=1e6)
    future = pool.submit(
        search, asked, launcher, SilentReporter(), pause=lambda seconds: None, foreign_cores=lambda seconds: 0.0
    )
    return launcher, future


def disturb(
    fleet: Fleet, names: list[str], *, kills: int, restarts: int, seed: int,
    is_over: Callable[[], bool] = lambda: False,
) -> Tally:  # fmt: skip
    """Kill workers at random moments, start each again, and restart the server in between; stop if it is over."""
    until(lambda: any(fleet.began(name) for name in names))
    chance, tally, began = random.Random(seed), Tally(), time.monotonic()
    when = chance.sample(range(1, kills), restarts)
    for number in range(kills):
        time.sleep(chance.uniform(0, MOST_PAUSE_SECONDS))
        if is_over():
            break
        if number in when:
            fleet.server.restart()
            tally.restarts += 1
        name = chance.choice(names)
        tally.in_probes += fleet.is_at_work(name)
        tally.pids.add(fleet.workers[name].pid)
        fleet.kill_and_restart(name)
        tally.kills += 1
    tally.seconds = time.monotonic() - began
    tally.pids |= {process.pid for process in fleet.workers.values()}
    return tally


def count_probes(tally: Tally, fleet: Fleet, launcher: FleetLauncher, names: list[str]) -> None:
    """Read the study's folder, the workers' diaries, and what the queue still holds."""
    tally.pending = len(launcher.queue.left_over())
    places = sorted((fleet.folder / "study" / "probes").iterdir())
    tally.asked = len(places)
    for place in places:
        if not (place / RESULT).is_file():
            tally.lost.append(place.name)
        else:
            tally.answered[codec.read(place / RESULT, ProbeResult).outcome] += 1
    spans: dict[str, list[tuple[float, float]]] = {}
    for name in names:
        for place, start, end in fleet.spans(name):
            spans.setdefault(place, []).append((start, end))
    for place, times in spans.items():
        times.sort()
        tally.again += len(times) - 1
        if any(end > start for (_, end), (start, _) in pairwise(times)):
            tally.twice_at_once.append(place)


def count_processes(tally: Tally) -> None:
    """Look for probes whose worker is gone."""
    parents = [f"--parent {pid}" for pid in tally.pids]
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or ()) + " "
        tally.orphans += any(f"{parent} " in words for parent in parents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--search", action="store_true", help="a whole search on a simulated machine")
    asked = vars(parser.parse_args())
    of = soak_search if asked.pop("search") else soak
    server = Server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            tally = of(server, Path(folder) / "fleet", **asked)
    finally:
        server.close()
    print(f"{platform.machine()}, Python {platform.python_version()}; lease given up after {QUICK.grace:.0f} s")
    print(tally.table())
    raise SystemExit(not tally.is_sound or tally.kills < asked["kills"])


if __name__ == "__main__":
    main()
