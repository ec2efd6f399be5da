"""Does a study survive its searching process being killed at any moment? Real searches of a tiny target, kill -9.

    python -m benchmarks.soak [--kills 100] [--seed 0] [--isolation fork]     from the root; 6 to 8 s per kill

The moments are spread evenly up to the time in which a first, undisturbed run finishes its second probe. After every
kill: no process may be left, every result that was finished before must lie there unchanged, the database must be
sound, and the next run must go on with the study.
"""

import argparse
import random
import signal
import sqlite3
import statistics
import subprocess
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from autotune.launch.base import RESULT
from autotune.study import disk
from tests.commandline import processes, start, wait_until  # found only from the root of the repository

STUDY = Path("studies", "model")
SEARCH = ("search", "model.py", "-t", "10h", "-n", "10000", "--sampler", "random", "--global-batch", "free")
EARLIEST_SECONDS = 0.5  # after the start
GONE_WITHIN_SECONDS = 5.0  # of the kill
TARGET = """\
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model(): return nn.Linear(8, 2)
def dataset(): return TensorDataset(torch.randn(4096, 8), torch.randint(2, (4096,)))
baseline = {"batch_size": 64}
space = {"batch_size": [4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256], "amp_dtype": [None], "num_workers": [0, 1, 2]}
"""


@dataclass
class Tally:
    """What went wrong, and how much had the chance to."""

    kills: int = 0
    resumes: int = 0
    lost: list[str] = field(default_factory=list)
    failed_resumes: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    broken_databases: list[str] = field(default_factory=list)
    finished: dict[str, bytes] = field(default_factory=dict)
    gone_seconds: list[float] = field(default_factory=list)  # from each kill to the end of all that the search started

    def table(self) -> str:
        """One line per count, with the first few cases of what went wrong."""
        rows = (
            ("kill -9", self.kills, []),
            ("finished trials", len(self.finished), []),
            ("finished trials lost or changed", len(self.lost), self.lost),
            ("resumes seen", self.resumes, []),
            ("failed resumes", len(self.failed_resumes), self.failed_resumes),
            ("processes left behind", len(self.orphans), self.orphans),
            ("unreadable databases", len(self.broken_databases), self.broken_databases),
        )
        counts = [f"{name:34}{count:6d}  {'; '.join(details[:3])}".rstrip() for name, count, details in rows]
        gone = f"median {statistics.median(self.gone_seconds):.2f}, most {max(self.gone_seconds):.2f}"
        return "\n".join([*counts, f"all processes gone after a kill, seconds: {gone}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--isolation", choices=("fork", "fresh"), default="fork")
    options = parser.parse_args()
    search = (*SEARCH, "--isolation", options.isolation)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else a background job's searches cannot be interrupted
    chance = random.Random(options.seed)
    tally = Tally()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        (home / "model.py").write_text(TARGET)
        latest = first_run(home, search, tally)
        print(f"kills {EARLIEST_SECONDS:g} to {latest:.1f} s after the start of each run")
        for _ in range(options.kills):
            was_killed = killed(start(home, *search), chance.uniform(EARLIEST_SECONDS, latest), tally)
            look_around(home, tally, was_killed=was_killed)
        last_run(home, search, tally)
    print(tally.table())
    bad = (tally.lost, tally.failed_resumes, tally.orphans, tally.broken_databases)
    return int(any(bad))


def first_run(home: Path, words: tuple[str, ...], tally: Tally) -> float:
    """Interrupt a search when its second probe has ended; the seconds until then."""
    began = time.monotonic()
    search = start(home, *words)
    wait_until(lambda: search.poll() is not None or len(results(home)) >= 2, "no two probes were finished")
    seconds = time.monotonic() - began
    search.send_signal(signal.SIGINT)
    output, _ = search.communicate()
    assert search.returncode == 130, output
    look_around(home, tally)
    return seconds


def results(home: Path) -> dict[str, bytes]:
    """The result of every finished probe, by number."""
    return {path.parent.name: path.read_bytes() for path in (home / STUDY).glob(f"probes/*/{RESULT}")}


def killed(search: subprocess.Popen[str], seconds: float, tally: Tally) -> bool:
    """Let the search run for so long, kill it, and read from its output whether it went on. False: it had ended."""
    begun = bool(tally.finished)
    try:
        output, _ = search.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        search.kill()
        tally.kills += 1
        output, _ = search.communicate()
    ended_well = search.returncode in (0, -signal.SIGKILL)  # 0: the space is exhausted, and it recommended
    if "error:" in output or not ended_well:
        tally.failed_resumes.append(f"status {search.returncode}: {output[-300:]}")
    tally.resumes += begun and "(resumed)" in output
    return search.returncode == -signal.SIGKILL


def look_around(home: Path, tally: Tally, *, was_killed: bool = False) -> None:
    """Compare what lies there with what lay there before."""
    ended = time.monotonic()
    while (left := processes(home)) and time.monotonic() < ended + GONE_WITHIN_SECONDS:
        time.sleep(0.05)
    if not left and was_killed:
        tally.gone_seconds.append(time.monotonic() - ended)
    tally.orphans += [str(process) for process in left]
    for process in left:
        process.kill()
    now = results(home)
    tally.lost += [number for number, result in tally.finished.items() if now.get(number) != result]
    tally.finished = now
    if (home / STUDY / disk.STUDY).exists():
        disk.read_trials(home / STUDY)
    database = home / STUDY / disk.DATABASE
    if database.exists():
        with closing(sqlite3.connect(database)) as connection:
            try:
                (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
            except sqlite3.Error as error:
                verdict = str(error)
        if verdict != "ok":
            tally.broken_databases.append(verdict)


def last_run(home: Path, words: tuple[str, ...], tally: Tally) -> None:
    """After all kills the study must still be able to finish a probe, or to say that there is nothing left to probe."""
    before = len(tally.finished)
    search = start(home, *words)
    wait_until(lambda: search.poll() is not None or len(results(home)) > before, "the last run came to nothing")
    search.send_signal(signal.SIGINT)
    output, _ = search.communicate()
    if search.returncode not in (0, 130) or "(resumed)" not in output:
        tally.failed_resumes.append(f"the last run, status {search.returncode}: {output[-300:]}")
    look_around(home, tally)


if __name__ == "__main__":
    raise SystemExit(main())
