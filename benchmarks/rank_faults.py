"""Ten faults of one of two ranks: what our probe and three launchers of torch say of them, and what they leave behind.

    python -m benchmarks.rank_faults [--only NAME] [--launchers ours,torchrun]   from the repository's root; ten minutes

The same user code everywhere (`tests/faults/rank_faults.py`): two gloo ranks on the CPU, DDP, one DataLoader worker for
each, and rank 1 suffers in its fourth step. The others get a deadline of 20 s, as a script around them would set it,
and 2 s of grace after SIGTERM; ours gets a stall limit of 5 s. Told are the rank that is blamed; whether a word of the
cause is said anywhere in what is printed, the tracebacks of all ranks included; the processes left 0.3 s after the
launcher came back; and the seconds from the fault until it did, of a hang from the limit on. Counted as right: rank 1,
with its cause.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.knobs import defaults
from autotune.launch.subprocess import SubprocessLauncher
from tests.faults.rank_faults import FAULTS, RankFault, suffering, target  # found only from the root of the repository

MARK = "_AUTOTUNE_BENCHMARK"
STALL_SECONDS, DEADLINE_SECONDS, GRACE_SECONDS = 5.0, 20.0, 2.0
NOTE = "import os, time; open(os.environ['FAULT_AT'], 'w').write(repr(time.time()))"
SCRIPT = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def train(*_):
    global RANK
    RANK = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    net = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(1000):
        for batch in torch.utils.data.DataLoader(data, 16, num_workers=1):
            cost(net, batch).backward()
            optimizer.step()
            optimizer.zero_grad()

if __name__ == "__main__":
    train()
"""
SPAWN = """
import os, sys, torch.multiprocessing as mp
sys.path.insert(0, os.getcwd())
import train
def rank(number):
    os.environ["RANK"] = str(number)
    train.train()
if __name__ == "__main__":
    os.environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1]}
    try:
        mp.start_processes(rank, nprocs=2, start_method="spawn")
    except mp.ProcessRaisedException as error:
        print("BLAMED", error.error_index, "Root:", str(error))
    except mp.ProcessExitedException as error:
        print("BLAMED", error.error_index, "Root:", error.signal_name or error.exit_code)
"""
ELASTIC = """
import os, sys
sys.path.insert(0, os.getcwd())
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
import train
if __name__ == "__main__":
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0",
                          run_id=sys.argv[1], max_restarts=0, monitor_interval=0.1)
    try:
        elastic_launch(config, train.train)()
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        print("BLAMED", rank, "Root:", failure.exitcode, failure.message)
"""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a launcher said of one fault."""

    blamed: str  # the rank; empty: none
    knows_cause: bool
    left: int  # processes
    seconds: float  # from the fault, or from the limit of a hang, until the launcher was back

    @property
    def is_right(self) -> bool:
        """Whether it blames the right rank for the right cause."""
        return self.blamed == "1" and self.knows_cause


def ours(fault: RankFault, place: Path) -> Told:
    """Run the fault in a probe of two ranks."""
    (place / "model.py").write_text(target(_noting(fault)))
    (place / "probe").mkdir()
    budget = ProbeBudget(first_step_deadline_seconds=STALL_SECONDS, step_deadline_seconds=STALL_SECONDS)
    config = Config(values=defaults() | {"batch_size": 16, "num_workers": 1})
    request = ProbeRequest(target="model.py", config=config, device="cpu", budget=budget, ranks=2)
    before = Path.cwd()
    os.chdir(place)
    try:
        with SubprocessLauncher(environ=_environ(place)) as launcher:
            result = launcher.run(request, place / "probe")
            ended = time.time()
    finally:
        os.chdir(before)
    message = result.failure.message if result.failure else ""
    evidence = f"{result.outcome} {message} {result.failure.evidence if result.failure else ''}"
    cause = "memory" if result.outcome.out_of_memory else evidence
    found = re.match(r"rank (\d)", message)
    limit = STALL_SECONDS if fault.outcome.value == "timeout" else 0.0
    return _told(fault, place, found[1] if found else "", cause, ended, limit)


def torchrun(fault: RankFault, place: Path) -> Told:
    """Run it with torchrun, which prints whom it blames."""
    words = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
    output, ended = _limited(fault, place, words)
    rank = re.search(r"rank\s*: (\d)", output.partition("Root Cause")[2])
    return _told(fault, place, rank[1] if rank else "", output, ended, _limit_of(fault))


def elastic(fault: RankFault, place: Path) -> Told:
    """Run it with `elastic_launch`."""
    (place / "launch.py").write_text(ELASTIC)
    output, ended = _limited(fault, place, (sys.executable, "launch.py", place.name))
    return _from_blame(fault, place, output, ended)


def spawn(fault: RankFault, place: Path) -> Told:
    """Run it with `torch.multiprocessing.start_processes`."""
    (place / "launch.py").write_text(SPAWN)
    output, ended = _limited(fault, place, (sys.executable, "launch.py", str(20_000 + os.getpid() % 10_000)))
    return _from_blame(fault, place, output, ended)


def _from_blame(fault: RankFault, place: Path, output: str, ended: float) -> Told:
    found = re.search(r"BLAMED (\d)", output)
    return _told(fault, place, found[1] if found else "", output, ended, _limit_of(fault))


def _limit_of(fault: RankFault) -> float:
    return DEADLINE_SECONDS if fault.hangs else 0.0


def _limited(fault: RankFault, place: Path, words: tuple[str, ...]) -> tuple[str, float]:
    """Run a launcher until it ends, with a deadline from the fault on; its output, and when it was back."""
    (place / "train.py").write_text(suffering(_noting(fault)) + SCRIPT)
    with (place / "log.txt").open("wb") as log:
        environ = {**os.environ, **_environ(place)}
        process = subprocess.Popen(words, cwd=place, env=environ, stdout=log, stderr=subprocess.STDOUT)
        give_up = time.time() + 120.0  # to begin at all, on a busy machine
        while process.poll() is None and time.time() < give_up:
            give_up = min(give_up, _fault_at(place) + DEADLINE_SECONDS)
            time.sleep(0.02)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        ended = time.time()
    return (place / "log.txt").read_text("utf-8", "replace"), ended


def _noting(fault: RankFault) -> RankFault:
    """Return the fault with a note of the moment before it."""
    return RankFault(**{**fault.__dict__, "code": f"{NOTE}\n{fault.code}"})


def _environ(place: Path) -> dict[str, str]:
    return {MARK: str(place), "FAULT_AT": str(place / "fault_at"), "OMP_NUM_THREADS": "1"}


def _fault_at(place: Path) -> float:
    with suppress(OSError, ValueError):
        return float((place / "fault_at").read_text())
    return float("inf")


def _told(fault: RankFault, place: Path, blamed: str, cause: str, ended: float, limit: float) -> Told:
    time.sleep(0.3)
    left = _marked(place)
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    since = ended - _fault_at(place) - limit
    return Told(blamed=blamed, knows_cause=fault.cause in cause, left=len(left), seconds=since)


def _marked(place: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == str(place):
                found.append(process)
    return found


LAUNCHERS: dict[str, Callable[[RankFault, Path], Told]] = {
    "ours": ours, "torchrun": torchrun, "elastic_launch": elastic, "mp.start_processes": spawn,
}  # fmt: skip


def main() -> int:
    """Print a row for each fault and launcher, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the faults whose name contains this")
    parser.add_argument("--launchers", default=",".join(LAUNCHERS))
    options = parser.parse_args()
    names, faults = options.launchers.split(","), [one for one in FAULTS if options.only in one.name]
    told: dict[str, list[Told]] = {name: [] for name in names}
    print("| fault of rank 1 | " + " | ".join(names) + " |\n|" + " --- |" * (len(names) + 1))
    for fault in faults:
        for name in names:
            with tempfile.TemporaryDirectory() as place:
                told[name].append(LAUNCHERS[name](fault, Path(place)))
        print(f"| {fault.name} | " + " | ".join(_cell(told[name][-1]) for name in names) + " |", flush=True)
    rights = (f"{sum(one.is_right for one in told[name])} of {len(faults)}" for name in names)
    print("| **right rank and cause** | " + " | ".join(rights) + " |")
    print("| **processes left** | " + " | ".join(str(sum(one.left for one in told[name])) for name in names) + " |")
    print(json.dumps({name: [one.__dict__ for one in rows] for name, rows in told.items()}), file=sys.stderr)
    return 0


def _cell(one: Told) -> str:
    blamed = f"rank {one.blamed}" if one.blamed else "no rank"
    cause = "" if one.knows_cause else ", no cause"
    return f"{blamed}{cause}, {one.seconds:.1f} s" + (f", {one.left} left" if one.left else "")


if __name__ == "__main__":
    raise SystemExit(main())
