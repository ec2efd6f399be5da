"""Runs a program that autotune cannot control in the main thread, while autotune's own work waits in another.

    main thread   the program ──► a hook: it is enough ─ ─ ─ (never returns into the program)
    ours          waits ─────────────────────────────► reads the instruments, writes the result, ends the process

So nothing that the program does when it is interrupted (it catches every exception, runs `finally`, exits) can spoil
the measurement; and it has the thread that signal handlers and forked loader workers need.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import NoReturn

_asked: SimpleQueue[Callable[[], None]] = SimpleQueue()
_is_lent = False
_awaited: SimpleQueue[Callable[[], NoReturn]] = SimpleQueue()


def lend(work: Callable[[], object]) -> NoReturn:
    """Run `work`, which ends the process, in a second thread; this thread then runs the body given to `Guest.run`.

    If `work` raises, the process ends with status 1: this thread would wait for ever.
    """
    global _is_lent
    _is_lent = True
    threading.Thread(target=_or_end, args=(work,), name="autotune", daemon=True).start()
    while True:
        _asked.get()()


def _or_end(work: Callable[[], object]) -> None:
    try:
        work()
    except BaseException:  # whatever it is: nobody else sees it
        traceback.print_exc()
        os._exit(1)


def await_end() -> NoReturn:
    """Wait for the end of a program that goes on after its measurement. Raises why it ended."""
    _awaited.get()()


def note_going_on(until_end: Callable[[], NoReturn]) -> None:
    """Note that a program goes on, for `await_end`: `until_end` waits for its end and raises the reason."""
    _awaited.put(until_end)


class Guest:
    """A program that runs in the main thread or, if that was not lent, in one of its own."""

    def __init__(self, *, goes_on: bool = False) -> None:
        """`goes_on`: `finish` returns into the program, because other ranks wait for its steps."""
        self.goes_on = goes_on
        self.is_over = False  # the measurement is complete
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(self, body: Callable[[], None]) -> None:
        """Wait until `body` returns, or calls `leave`. Raises what `body` raises or gives to `leave`."""
        born = os.getpid()

        def whole() -> None:
            error: BaseException | None = None
            try:
                body()
            except BaseException as raised:  # of any kind: it is raised again in the waiting thread
                error = raised
            if os.getpid() != born:  # a process that the program forked also reaches its end
                os._exit(0)
            self._ended.put(error)

        if _is_lent:
            _asked.put(whole)
        else:
            threading.Thread(target=whole, daemon=True).start()
        self.wait()

    def wait(self) -> None:
        """Wait for the end of the program, or of its measurement if that comes first. Raises what ended the program."""
        if (error := self._ended.get()) is not None:
            raise error

    def end(self, error: BaseException) -> None:
        """End `run`, from any other thread; the program goes on until the process ends."""
        self._ended.put(error)

    def finish(self) -> None:
        """End the measurement from within the program. Returns only if the program goes on."""
        self.is_over = True
        if not self.goes_on:
            self.leave()
        self._ended.put(None)

    def leave(self, error: BaseException | None = None) -> NoReturn:
        """End `run` from within the program, and never return to it."""
        self._ended.put(error)
        held = threading.Lock()
        held.acquire()
        while True:
            try:
                held.acquire()  # a signal handler of the program may run meanwhile and raise
            except BaseException:  # whatever that handler raises: this thread must never return to the program
                continue
