"""Does a fleet survive kill -9 of its workers at any moment, and restarts of its database? Yes or no, with counts.

    python -m benchmarks.fleet_soak [--kills 50] [--restarts 2] [--workers 4] [--seed 0]     from the root

A real PostgreSQL server, real workers in processes of their own, and probes that are processes of their own but cost
little: `tests/faults/faulty_child.py`, half a second each. A search with a launcher of the product asks for probes
until all kills have happened, and as many as there are workers at once. A worker that was killed is started again, as a
supervisor would. Afterwards: every probe must have one result, none may have been run twice at once, none may be left
in the queue, no process may be left, and the search must have ended.
"""

from __future__ import annotations

import argparse
import platform
import random
import tempfile
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path

import psutil
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.records import Config
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome, ProbeResult
from autotune.launch.base import RESULT
from autotune.testing.launcher_contract import example
from tests.fleet.fleet import QUICK, Fleet, until
from tests.postgres import Server

MOST_PAUSE_SECONDS = 3.0  # between two kills
PROBE = example(ProbeRequest, "measure")


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
    seconds: float = 0.0

    @property
    def is_sound(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.lost or self.twice_at_once or self.pending or self.orphans)

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
        return "\n".join(f"| {name} | {value} |" for name, value in (("", ""), ("---", "---"), *rows))


def soak(server: Server, folder: Path, *, kills: int, restarts: int, workers: int, seed: int) -> Tally:
    """Kill workers of one search at random, and say what became of its probes."""
    chance, tally, began = random.Random(seed), Tally(), time.monotonic()
    pids = set[int]()  # of all workers
    names = [f"worker{number}" for number in range(workers)]
    with Fleet(server, folder) as fleet:
        for name in names:
            fleet.worker(name)
        launcher, numbers, ended = fleet.launcher(expected=workers), count(), False
        (fleet.folder / "study" / "probes").mkdir(parents=True)

        def ask() -> None:
            while not ended:
                number = next(numbers)
                place = fleet.place(number)
                workers = launcher.workers()
                one = launcher.on(workers[number % len(workers)].id) if workers else launcher
                one.run(replace(PROBE, config=Config(values={**PROBE.config.values, "batch_size": number + 1})), place)

        with ThreadPoolExecutor(workers) as pool:
            futures: list[Future[None]] = [pool.submit(ask) for _ in names]
            until(lambda: any(fleet.began(name) for name in names))
            when = sorted(chance.sample(range(1, kills), restarts)) if restarts else []
            for number in range(kills):
                time.sleep(chance.uniform(0, MOST_PAUSE_SECONDS))
                if number in when:
                    server.restart()
                    tally.restarts += 1
                name = chance.choice(names)
                tally.in_probes += bool(_probes(fleet.workers[name].pid))
                pids.add(fleet.workers[name].pid)
                fleet.kill(name)
                tally.kills += 1
                fleet.worker(name)
            ended = True
            for future in futures:
                future.result()
        tally.pending = len(launcher.queue.left_over())
        _count(tally, fleet, names)
        pids |= {process.pid for process in fleet.workers.values()}
    tally.orphans = sum(len(_probes(pid)) for pid in pids)
    tally.seconds = time.monotonic() - began
    return tally


def _probes(pid: int) -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["cmdline"]) if f"--parent {pid}" in " ".join(one.info["cmdline"] or ())]


def _count(tally: Tally, fleet: Fleet, names: list[str]) -> None:
    """Read the study's folder and the workers' diaries."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    server = Server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            tally = soak(server, Path(folder) / "fleet", **vars(asked))
    finally:
        server.close()
    print(f"{platform.machine()}, Python {platform.python_version()}; lease given up after {QUICK.grace:.0f} s")
    print(tally.table())
    raise SystemExit(not tally.is_sound)


if __name__ == "__main__":
    main()
