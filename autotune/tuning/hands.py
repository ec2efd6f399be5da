"""The hands of a search: who measures. One on this machine, or one for each worker of a fleet, all at once.

The steps of several hands take turns: one computes at a time, and passes the baton on while it measures. So a step is
written as if it were alone, and needs no locks.

    hand 1   ask ─ measure ···················· tell
    hand 2       ─ ask ─ measure ········ tell ─
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
from autotune.fleet.records import Hand
from autotune.launch.base import Launcher
from autotune.launch.processes import insist

LOOK_SECONDS = 2.0  # between two looks at which workers are there
Step = Callable[[SearchContext, Hand | None], None]  # None: it measures on this machine


@dataclass
class _Turn:
    """A step that a hand carries out in a thread of its own."""

    measures: threading.Event  # it passed the baton on for the first time, or has ended
    thread: threading.Thread | None = None
    error: BaseException | None = None


class Hands:
    """The hands of a search, as a context that leaves no step behind."""

    def __init__(self, context: SearchContext) -> None:
        self._context, self._baton, self._an_end = context, threading.Lock(), threading.Event()
        self._fleet = context.launcher if isinstance(context.launcher, Fleet) else None
        self._turns: dict[int, _Turn] = {}
        self._known: tuple[Hand, ...] = ()
        self._last: dict[int, int] = {}  # the number of the latest step of each
        self._looked = float("-inf")

    def __enter__(self) -> Self:
        self._baton.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._fleet is not None and kind is not None:
                self._fleet.stop()
            for turn in self._turns.values():
                if turn.thread is not None:
                    self._lend(turn.thread.join)
        finally:
            self._baton.release()

    @property
    def busy(self) -> int:
        """How many carry a step out."""
        return len(self._turns)

    def has_free(self) -> bool:
        """Return whether somebody may measure and does nothing: always so on this machine."""
        return self._fleet is None or self._free() is not None

    def carry_out(self, step: Step) -> None:
        """Have the first one that is free carry a step out; come back when it measures, on this machine when it ends.

        Raises what the step raised until then.
        """
        if self._fleet is None:
            step(self._context, None)
            return
        hand = self._free()
        assert hand is not None, "asked for only where one is free"
        self._last[hand.id] = 1 + max(self._last.values(), default=0)
        turn = self._turns[hand.id] = _Turn(threading.Event())
        turn.thread = threading.Thread(target=copy_context().run, args=(self._take_turn, self._fleet, hand, turn, step))
        turn.thread.start()
        self._lend(turn.measures.wait)
        self._collect()

    def wait(self) -> None:
        """Wait until a step ends, or for a while. Raises what a step raised."""
        self._lend(lambda: self._an_end.wait(LOOK_SECONDS))
        self._collect()

    def mark(self, hand: Hand, *, reference: float | None, quarantined: str) -> None:
        """Keep what the reference of a worker showed, and why it gets no more probes, if so."""
        assert self._fleet is not None, "the hand is one of a fleet's"
        self._fleet.mark(hand.id, reference=reference, quarantined=quarantined)

    def _free(self) -> Hand | None:
        if self._fleet is not None and time.monotonic() - self._looked > LOOK_SECONDS:
            self._known, self._looked = self._fleet.hands(), time.monotonic()
        free = [one for one in self._known if not one.quarantined and one.id not in self._turns]
        return min(free, key=lambda one: self._last.get(one.id, -1), default=None)  # who has waited longest

    def _take_turn(self, fleet: Fleet, hand: Hand, turn: _Turn, step: Step) -> None:
        pause = self._context.pause
        with self._baton:
            launcher = _PassingOn(fleet.on(hand.id), self._baton, turn.measures)
            own = replace(
                self._context, launcher=launcher, pause=lambda seconds: launcher.meanwhile(lambda: pause(seconds))
            )
            try:
                step(own, hand)
            except BaseException as error:  # it is raised where the search waits
                turn.error = error
            self._looked = float("-inf")  # a step may put its worker into quarantine
        turn.measures.set()
        self._an_end.set()

    def _lend(self, wait: Callable[[], object]) -> None:
        """Let the others compute meanwhile."""
        self._baton.release()
        try:
            wait()
        finally:
            insist(self._take_baton)

    def _take_baton(self) -> None:
        self._baton.acquire()

    def _collect(self) -> None:
        self._an_end.clear()
        for worker, turn in list(self._turns.items()):
            if turn.thread is not None and not turn.thread.is_alive():
                del self._turns[worker]
                if turn.error is not None:
                    raise turn.error


class _PassingOn:
    """A launcher that passes the baton on while it measures."""

    def __init__(self, launcher: Launcher, baton: threading.Lock, measures: threading.Event) -> None:
        self._launcher, self._baton, self._measures = launcher, baton, measures

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        """Run the request; see `Launcher`."""
        found: list[ResultT] = []
        self.meanwhile(lambda: found.append(self._launcher.run(request, folder)))
        return found[0]

    def meanwhile(self, action: Callable[[], None]) -> None:
        """Do something while others compute."""
        self._measures.set()
        self._baton.release()
        try:
            action()
        finally:
            self._baton.acquire()
