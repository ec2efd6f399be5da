"""The turns of a search: one after another on this machine, or one on each worker of a fleet at the same time.

A turn asks for a configuration, measures it, and tells the sampler. One turn computes at a time, and the next one
computes while it measures. So a turn is written as if it ran alone, and needs no locks.

    worker 1   ask ─ measure ···················· tell
    worker 2       ─ ask ─ measure ········ tell ─
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from autotune.context.search_context import SearchContext
from autotune.core.requests import Request, ResultT
from autotune.fleet.base import Fleet
from autotune.fleet.records import FleetWorker
from autotune.launch.base import Launcher
from autotune.launch.processes import insist

WORKERS_LOOK_SECONDS = 2.0  # seconds between two reads of the list of workers
Turn = Callable[[SearchContext, FleetWorker | None], None]  # without a worker it measures on this machine


@dataclass
class _RunningTurn:
    """A turn on a worker, in a thread of its own."""

    measures: threading.Event  # set once the turn measures, or has ended
    thread: threading.Thread | None = None
    error: BaseException | None = None


class Turns:
    """The turns of a search, as a context manager that leaves none of them running."""

    def __init__(self, context: SearchContext) -> None:
        self._context, self._baton, self._an_end = context, threading.Lock(), threading.Event()
        self._fleet = context.fleet
        self._running: dict[int, _RunningTurn] = {}  # by worker
        self._known: tuple[FleetWorker, ...] = ()
        self._last: dict[int, int] = {}  # the number of the latest turn of each worker
        self._looked = float("-inf")

    def __enter__(self) -> Self:
        self._baton.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._fleet is not None and kind is not None:
                self._fleet.stop()
            for running in self._running.values():
                if running.thread is not None:
                    self._lend(running.thread.join)
        finally:
            self._baton.release()

    @property
    def running(self) -> int:
        """The number of running turns."""
        return len(self._running)

    def has_free_worker(self) -> bool:
        """Return whether a worker is free to measure; this machine always is."""
        return self._fleet is None or self._free() is not None

    def begin(self, turn: Turn) -> None:
        """Begin a turn on the worker that has waited longest; return when it measures, on this machine when it ends.

        Raises what the turn raised until then.
        """
        if self._fleet is None:
            turn(self._context, None)
            return
        worker = self._free()
        assert worker is not None, "asked for only where one is free"
        self._last[worker.id] = 1 + max(self._last.values(), default=0)
        running = self._running[worker.id] = _RunningTurn(threading.Event())
        arguments = (self._run, self._fleet, worker, running, turn)
        running.thread = threading.Thread(target=copy_context().run, args=arguments)
        running.thread.start()
        self._lend(running.measures.wait)
        self._collect()

    def wait(self) -> None:
        """Wait until a turn ends, or for `WORKERS_LOOK_SECONDS`. Raises what a turn raised."""
        self._lend(lambda: self._an_end.wait(WORKERS_LOOK_SECONDS))
        self._collect()

    def mark(self, worker: FleetWorker, *, reference: float | None, quarantined: str) -> None:
        """Store the score of the baseline on a worker, and why it is quarantined; see `Fleet.mark`."""
        assert self._fleet is not None, "only a fleet has workers"
        self._fleet.mark(worker.id, reference=reference, quarantined=quarantined)

    def _free(self) -> FleetWorker | None:
        if self._fleet is not None and time.monotonic() - self._looked > WORKERS_LOOK_SECONDS:
            self._known, self._looked = self._fleet.workers(), time.monotonic()
        free = [one for one in self._known if not one.quarantined and one.id not in self._running]
        return min(free, key=lambda one: self._last.get(one.id, -1), default=None)  # the one that has waited longest

    def _run(self, fleet: Fleet, worker: FleetWorker, running: _RunningTurn, turn: Turn) -> None:
        pause = self._context.pause
        with self._baton:
            launcher = _LendingLauncher(fleet.on(worker.id), self._baton, running.measures)
            own = replace(
                self._context, launcher=launcher, pause=lambda seconds: launcher.meanwhile(lambda: pause(seconds))
            )
            try:
                turn(own, worker)
            except BaseException as error:  # it is raised again where the search waits
                running.error = error
            self._looked = float("-inf")  # a turn may quarantine its worker
        running.measures.set()
        self._an_end.set()

    def _lend(self, wait: Callable[[], object]) -> None:
        """Let other turns compute during `wait`."""
        self._baton.release()
        try:
            wait()
        finally:
            insist(self._take_baton)

    def _take_baton(self) -> None:
        self._baton.acquire()

    def _collect(self) -> None:
        self._an_end.clear()
        for worker, running in list(self._running.items()):
            if running.thread is not None and not running.thread.is_alive():
                del self._running[worker]
                if running.error is not None:
                    raise running.error


class _LendingLauncher:
    """A launcher that lets other turns compute while it measures."""

    def __init__(self, launcher: Launcher, baton: threading.Lock, measures: threading.Event) -> None:
        self._launcher, self._baton, self._measures = launcher, baton, measures

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        """Run the request and return its result; see `Launcher`."""
        found: list[ResultT] = []
        self.meanwhile(lambda: found.append(self._launcher.run(request, folder)))
        return found[0]

    def meanwhile(self, action: Callable[[], None]) -> None:
        """Run `action` while other turns compute."""
        self._measures.set()
        self._baton.release()
        try:
            action()
        finally:
            self._baton.acquire()
