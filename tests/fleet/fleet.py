"""A fleet for tests: real workers in processes of their own, whose probes are those of `faults/faulty_child.py`."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

import msgspec

from autotune.fleet.launcher import FleetLauncher
from autotune.fleet.records import QueuedStudy, Timing
from tests.postgres import Server

# Short, and still longer than it takes to come back to a server that was restarted.
QUICK = Timing(poll=0.05, beat=0.1, fence=4.0, grace=5.0, restarted=6.0, patience=60.0, gathering=60.0)
ROOT = Path(__file__).parents[2]
SOON_SECONDS = 60.0  # until something that is awaited has long happened


class Fleet:
    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.url, self.folder = server, server.new_database(), folder
        self.workers: dict[str, subprocess.Popen] = {}
        self._asked: dict[str, dict] = {}  # of each worker: how it was started
        self.launchers: list[FleetLauncher] = []
        self.asking: list[Executor] = []  # whose threads wait for what launchers run
        self.said: list[str] = []
        self.cwd = ROOT  # of the workers
        folder.mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        for launcher in self.launchers:
            launcher.stop()
        for pool in self.asking:
            pool.shutdown()  # a thread that still waits would connect anew, and nobody would close that connection
        for launcher in self.launchers:
            launcher.close(has_ended=True)
        for name in list(self.workers):
            self.kill(name)

    def worker(
        self, name: str, *, study: str = "study", timing: Timing = QUICK, url: str = "", within: Sequence[str] = (),
        **said: str,
    ) -> None:  # fmt: skip
        """Start a worker, as the last words of `within`; what it says is in its log, and what it runs in its diary."""
        self._asked[name] = {"study": study, "timing": timing, "url": url, "within": within, **said}
        words = {"url": url or self.url, "study": study, "name": name, "timing": msgspec.to_builtins(timing), **said}
        words["diary"] = str(self.diary(name))
        with self.log(name).open("w") as log:
            self.workers[name] = subprocess.Popen(
                [*within, sys.executable, "-m", "tests.fleet.worker_process", json.dumps(words)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                cwd=self.cwd, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.folder)},
            )  # fmt: skip

    def launcher(self, *, expected: int = 1, study: QueuedStudy | None = None, timing: Timing = QUICK) -> FleetLauncher:
        place = self.folder / "study"
        place.mkdir(exist_ok=True)
        study = study or QueuedStudy(name="study", target="ok", target_digest="", isolation="fresh")
        made = FleetLauncher(self.url, study, place, expected=expected, tell=self.said.append, timing=timing)
        self.launchers.append(made)
        return made

    def place(self, number: int) -> Path:
        """A new folder for a probe in the study."""
        found = self.folder / "study" / "probes" / f"{number:04d}"
        found.mkdir(parents=True)
        return found

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a worker a signal, and wait for its end."""
        process = self.workers.pop(name)
        if process.poll() is None:
            os.kill(process.pid, number)
        process.wait(SOON_SECONDS)
        with self.diary(name).open("a") as diary:
            diary.write(f"killed - {time.monotonic()}\n")

    def kill_and_restart(self, name: str) -> None:
        """Kill a worker, and start it as it was started, as a supervisor would."""
        self.kill(name)
        self.worker(name, **self._asked[name])

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def diary(self, name: str) -> Path:
        return self.folder / f"{name}.diary"

    def began(self, name: str) -> list[str]:
        """The places of what the worker has begun."""
        return [place for what, place, _ in self._entries(name) if what == "began"]

    def is_at_work(self, name: str) -> bool:
        """Whether the worker has begun something that it has not ended."""
        return [what for what, _, _ in self._entries(name)][-1:] == ["began"]

    def spans(self, name: str) -> list[tuple[str, float, float]]:
        """What the worker ran, from when until when; a kill ends it, too: its time is in the diary."""
        found, open_one = [], None
        for what, place, moment in self._entries(name):
            if what == "began":
                open_one = (place, moment)
            elif open_one is not None:
                found.append((*open_one, moment))
                open_one = None
        return found

    def _entries(self, name: str) -> list[tuple[str, str, float]]:
        diary = self.diary(name)
        lines = diary.read_text().splitlines() if diary.exists() else []
        return [(what, place, float(moment)) for what, place, moment in map(str.split, lines)]


def until(is_so: Callable[[], object], seconds: float = SOON_SECONDS) -> None:
    """Wait until it is so; fail if it never is."""
    last = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < last, "it never happened"
        time.sleep(0.02)
