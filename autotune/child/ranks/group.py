"""Supervises the ranks of one request, and makes one result of theirs.

    this process ──► torchrun, as it was typed ──► rank 0, 1, ...    each is `python -m autotune.child --ranks DIR`
         ▲      └──► without one: rank 0, 1, ... (`rank_processes.py`)       │   and a probe like any other
         └──── DIR/N: progress, result, stacks ──────────────────────────────┘

Each rank measures like any probe, and goes on training, or waits, until all have measured. The first failure ends them
all, after a moment in which a better reason may arrive: ranks fail one after the other, because they wait for one
another. Imports no torch.
"""

from __future__ import annotations

import faulthandler
import math
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import psutil

from autotune.child.lifeline import Progress
from autotune.child.ranks.rank_processes import LauncherRanks, RankProcesses, lives, processes_for, send
from autotune.child.ranks.rank_results import (
    MAIN_THREAD,
    died,
    failure_that_caused_the_others,
    hung,
    merged,
    other_ranks,
    request_of_rank,
)
from autotune.core import codec
from autotune.core.requests import Request, ResultT
from autotune.failures.classify import SIGNALS
from autotune.launch.base import REQUEST, RESULT
from autotune.targets.commands.hygiene import RANKS_FOLDER

PROGRESS, STACKS, END = "progress", "stacks", "end"  # in a rank's folder
GROUP_TICK_SECONDS = 0.25  # between two looks, if no rank reports anything
SETTLE_SECONDS = 0.5  # from a first failure to the verdict: the others followed within 0.4 s (measured, gloo)
GROUP_STACKS_SECONDS = 0.5  # for silent ranks to write their stacks; the search waits for a second
# For a rank that is not measured, after the end of one that is: it may wait for that one's next step, for ever.
OTHERS_END_SECONDS = 10.0
_READ_BYTES = 2**16
_OF_OTHERS = (None, -signal.SIGTERM)  # exit statuses of ranks that were ended because of another rank


class _Silent(Exception):
    """Raised when the search asks for stacks, because no rank has reported progress for too long."""


class Rank:
    """One rank, as the supervising process sees it: its progress, its process and its result."""

    def __init__(self, number: int, folder: Path, request: Request[Any]) -> None:
        self.number, self.folder = number, folder / str(number)
        self.folder.mkdir(parents=True)
        codec.write(self.folder / REQUEST, request)
        os.mkfifo(self.folder / PROGRESS)
        self.pipe = os.open(self.folder / PROGRESS, os.O_RDWR | os.O_NONBLOCK)  # not read-only: it would end at once
        self.phases: list[str] = []
        self.has_beat = False
        self.pid: int | None = None
        self.world_size: int | None = None  # that the launcher told it
        self.is_dead = False  # before it was ended, and without a failure of its own to report
        self.result: Any = None
        self.end: Any = None  # the failed result of a rank whose program has ended after it was measured
        self.heard_at = 0.0  # by `time.monotonic`
        self._kind, self._unread = request.kind().result, b""

    def look(self) -> None:
        """Read the rank's progress, and note its end."""
        with suppress(BlockingIOError):
            *lines, self._unread = (self._unread + os.read(self.pipe, _READ_BYTES)).split(b"\n")
            for word, _, value in (line.decode("utf-8", "replace").partition(" ") for line in lines):
                if word == "rank":
                    self.pid, self.world_size = map(int, value.split())
                elif word == "phase":
                    self.phases.append(value)
                self.has_beat |= word == "step"
                self.heard_at = time.monotonic()
        if self.result is None and (self.folder / RESULT).exists():
            self.result = codec.read(self.folder / RESULT, self._kind)
        if self.end is None and self.is_measured and (self.folder / END / RESULT).exists():
            self.end = codec.read(self.folder / END / RESULT, self._kind)
        self.is_dead = (self.result is None or self.is_measured) and self.pid is not None and not lives(self.pid)

    @property
    def is_measured(self) -> bool:
        """Whether the rank has a result that is no failure."""
        return self.result is not None and self.result.failure is None

    @property
    def has_failed(self) -> bool:
        """Whether the rank is gone, or has reported a failure."""
        return self.is_dead or (self.result is not None and not self.is_measured)

    def send(self, number: int) -> None:
        """Send the rank a signal, if it has started and is alive."""
        send(self.pid, number)

    def stacks(self) -> str:
        """Return the stacks of the rank's threads that it wrote when asked; empty: none."""
        with suppress(OSError):
            return (self.folder / STACKS).read_text("utf-8", "replace")
        return ""


def supervise(
    request: Request[ResultT], progress: Progress, folder: Path, become: Callable[[Path], NoReturn]
) -> ResultT:
    """Run the request in every rank of it. Raises `TargetError` for a command that starts none.

    `become` is the function that a process runs which was forked as a rank.
    """
    of_ranks = folder / RANKS_FOLDER
    processes = processes_for(request, of_ranks, become)
    ranks = [Rank(one, of_ranks, request_of_rank(request, one, processes.count)) for one in range(processes.count)]
    group = _Group(request, ranks, processes, progress)
    try:
        for number, pid in processes.start().items():
            ranks[number].pid = pid
        with _asked_for_stacks():
            result: ResultT = group.until_measured()
            return result
    except _Silent:
        return hung(request, group.stacks(), progress.current)
    finally:
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
        processes.close()


@dataclass
class _Group:
    request: Request[Any]
    ranks: list[Rank]
    processes: RankProcesses
    progress: Progress
    phases: int = 0  # that were reported to the search

    def until_measured(self) -> Any:
        """Return one result, once all ranks have measured, or one has failed."""
        poll, verdict_at = select.poll(), math.inf
        for rank in self.ranks:
            poll.register(rank.pipe, select.POLLIN)
        while True:
            poll.poll(1000 * max(0.0, min(GROUP_TICK_SECONDS, verdict_at - time.monotonic())))
            for rank in self.ranks:
                rank.look()
            self._pass_on()
            self._check_their_number()
            if all(rank.is_measured for rank in self.ranks):
                return merged([rank.result for rank in self.ranks], self.processes.own_bytes())
            now = time.monotonic()
            if now - max(rank.heard_at for rank in self.ranks) > OTHERS_END_SECONDS:
                for rank in self.ranks:
                    rank.result = rank.end or rank.result
            if self.processes.are_over() or any(rank.has_failed for rank in self.ranks):
                verdict_at = min(verdict_at, now + SETTLE_SECONDS)
            if now >= verdict_at:
                return self._verdict()

    def stacks(self) -> dict[int, str]:
        """Return the stacks of all ranks that have not reported, by number."""
        silent = [rank for rank in self.ranks if rank.result is None]
        for rank in silent:
            rank.send(signal.SIGUSR1)
        give_up = time.monotonic() + GROUP_STACKS_SECONDS
        while time.monotonic() < give_up and not all(MAIN_THREAD in rank.stacks() for rank in silent):
            time.sleep(0.02)
        return {rank.number: rank.stacks() for rank in silent}

    def _check_their_number(self) -> None:
        """Raise `TargetError` if a distributed launcher started another number of ranks than its command says."""
        started = {rank.world_size or len(self.ranks) for rank in self.ranks} - {len(self.ranks)}
        if started and isinstance(self.processes, LauncherRanks):
            raise other_ranks(self.processes.launch, started.pop())

    def _pass_on(self) -> None:
        """Report to the search the phase that all ranks have reached: a rank that hangs must be noticed."""
        waiting = [rank for rank in self.ranks if rank.result is None]
        reached = min((len(rank.phases) for rank in waiting), default=0)
        for name in waiting[0].phases[self.phases : reached] if waiting else ():
            self.progress.phase(name)
        self.phases = max(self.phases, reached)
        if waiting and all(rank.has_beat for rank in waiting):
            self.progress.beat()
            for rank in self.ranks:
                rank.has_beat = False

    def _verdict(self) -> Any:
        """Return the result of the rank that failed first, or end as it ended. Raises `TargetError`."""
        dead = [rank for rank in self.ranks if rank.is_dead]
        results = {rank.number: rank.result for rank in self.ranks if rank.result is not None}
        result = failure_that_caused_the_others(results, len(self.ranks), has_died=bool(dead))
        if result is not None:
            return result
        for rank in self.ranks if not self.processes.are_over() else ():
            rank.send(signal.SIGKILL)  # a distributed launcher waits for ranks that ignore other signals
        self.processes.settle()
        if not dead:
            self._end_as_launcher()
            raise self.processes.failed()
        ends = [(rank.number, self.processes.status(rank.number, rank.pid or 0)) for rank in dead]
        number, status = min(ends, key=lambda end: (end[1] in _OF_OTHERS, end[1] == -signal.SIGABRT))
        if status is not None:
            _end_as(f"rank {number} of {len(self.ranks)}", status)
        return died(self.request, number, len(self.ranks), self.progress.current)

    def _end_as_launcher(self) -> None:
        """End as the distributed launcher did, if it is gone and has left ranks that train, as when it is killed."""
        gone, has_ranks = self.processes, any(rank.pid for rank in self.ranks)
        if has_ranks and isinstance(gone, LauncherRanks) and gone.own_status is not None:
            _end_as(gone.launch.label, gone.own_status)


def _end_as(who: str, status: int) -> NoReturn:
    """End this process with the exit status of `who`, so that the search judges it like a single process."""
    how = f"killed by {SIGNALS.get(-status, f'signal {-status}')}" if status < 0 else f"exit status {status}"
    print(f"autotune: {who} ended without a result: {how}", flush=True)
    if status < 0:
        faulthandler.disable()
        with suppress(OSError):  # raised for SIGKILL, which cannot be handled
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


@contextmanager
def _asked_for_stacks() -> Iterator[None]:
    """Raise `_Silent` when the search asks for stacks: it sees only this process, not which rank is silent."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _Silent

    faulthandler.unregister(signal.SIGUSR1)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
