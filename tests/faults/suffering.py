"""Puts real targets with a fault through the real probe, as the searching tuner would, and looks at what is left."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from autotune.core.probe_tag import TAG
from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Isolation, Outcome, ProbeResult
from autotune.knobs import defaults
from autotune.launch.subprocess import SubprocessLauncher
from autotune.study import disk
from tests.faults.targets import Fault

SHORT = {
    "min_warmup_seconds": 0.0,
    "max_compute_seconds": 0.1,
    "max_loader_seconds": 0.1,
    "min_steps": 4,
    "min_seconds": 0.05,
    "max_seconds": 0.3,
}
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # so that the lanes do not spin against each other
LANES = 3  # probes side by side; many of them only wait for their deadline
FAULTS_PER_HEALTHY_PROBE = 10  # a healthy one costs as much as a fault, and each fault shows that its probe began well
WELL = Fault(name="healthy", code="", outcome=Outcome.OK)
MOUNTED = 'mount -t tmpfs -o size=2m tmpfs /dev/shm && exec "$@"'


@dataclass(frozen=True, kw_only=True)
class Suffered:
    """What came of one fault."""

    result: ProbeResult
    folder: Path
    survivors: tuple[str, ...]  # command lines of processes that carry the probe's tag
    next_result: ProbeResult  # of a healthy probe later on, through the same launcher


class House:
    """One study of faults, with a launcher for each kind of surroundings; it believes what a forked probe suffers."""

    def __init__(self, study: Path, isolation: Isolation = "fresh") -> None:
        self.study = disk.make(study)
        self._launcher = SubprocessLauncher(environ=ONE_THREAD, isolation=isolation)
        narrow = private_mounts()
        command = (*narrow, sys.executable, "-P", "-m", "autotune.child")
        self._narrow = None
        if narrow:
            self._narrow = SubprocessLauncher(command=command, environ=ONE_THREAD, isolation=isolation)
        for launcher in (self._launcher, self._narrow):
            if launcher is not None:
                launcher.doubted = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for launcher in (self._launcher, self._narrow):
            if launcher is not None:
                launcher.close()

    def can(self, fault: Fault) -> bool:
        """Whether this machine lets us make the fault's surroundings."""
        return self._narrow is not None or not fault.little_shared_memory

    def probe(self, fault: Fault, number: int) -> tuple[ProbeResult, Path]:
        """The probe of one fault, as probe `number` of the study."""
        folder = disk.make(self.study / disk.PROBES / f"{number:04d}")
        place = disk.make(self.study / "targets" / str(number))
        (place / "model.py").write_text(fault.text)
        launcher = self._narrow if fault.little_shared_memory else self._launcher
        assert launcher is not None, "skipped where there is none"
        request = ProbeRequest(
            target=str(place / "model.py"),
            config=Config(values=defaults() | {"batch_size": 8} | fault.config),
            device="cpu",
            number=number,
            budget=ProbeBudget(**(SHORT | fault.patience)),  # type: ignore[arg-type]
            memory_limit_bytes=fault.memory_limit_bytes,
        )
        return launcher.run(request, folder), folder

    def suffer(self, faults: Iterable[tuple[int, Fault]]) -> dict[str, Suffered]:
        """Some faults one after another, and healthy probes in between; numbers are doubled to make room for them."""
        found: dict[str, Suffered] = {}
        waiting: list[tuple[str, ProbeResult, Path, tuple[str, ...]]] = []
        faults = list(faults)
        for index, (number, fault) in enumerate(faults, 1):
            result, folder = self.probe(fault, 2 * number)
            waiting.append((fault.name, result, folder, left_running(folder)))
            if index % FAULTS_PER_HEALTHY_PROBE == 0 or index == len(faults):
                healthy, _ = self.probe(WELL, 2 * number + 1)
                for name, result, folder, survivors in waiting:
                    found[name] = Suffered(result=result, folder=folder, survivors=survivors, next_result=healthy)
                waiting.clear()
        return found


def suffer_all(faults: Iterable[Fault], study: Path, isolation: Isolation) -> dict[str, Suffered]:
    """Every fault by name, in a few lanes side by side."""
    with House(study, isolation) as house, ThreadPoolExecutor(LANES) as pool:
        numbered = [pair for pair in enumerate(faults) if house.can(pair[1])]
        lanes = [numbered[lane::LANES] for lane in range(LANES)]
        parts = list(pool.map(house.suffer, lanes))
    return {name: suffered for part in parts for name, suffered in part.items()}


def left_running(folder: Path, patience_seconds: float = 5.0) -> tuple[str, ...]:
    """What still carries the tag that the probe in `folder` had; the dying are given a moment to be gone."""
    tag = (folder / "tag").read_text()
    give_up = time.monotonic() + patience_seconds
    while (found := carrying(TAG, tag)) and time.monotonic() < give_up:
        time.sleep(0.05)
    return found


def private_mounts() -> tuple[str, ...]:
    """The command that runs another with a small /dev/shm of its own; empty where the machine forbids it."""
    for flags in ("-m", "-rm"):
        words = ("unshare", flags, "sh", "-c", MOUNTED, "sh")
        with suppress(OSError):
            if sys.platform == "linux" and subprocess.run((*words, "true"), capture_output=True).returncode == 0:
                return words
    return ()


def partial_files(study: Path) -> list[str]:
    """What an atomic write left half done."""
    return sorted(str(path) for path in study.rglob("*.partial"))


def carrying(name: str, value: str) -> tuple[str, ...]:
    """The living processes with this environment variable: their command lines."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
    return tuple(found)
