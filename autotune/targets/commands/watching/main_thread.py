"""The main thread, for a program that was not written to be led: our own work waits for it in another thread.

    main thread   the program ──► a hook: it is enough ─ ─ ─ (never returns into the program)
    ours          waits ─────────────────────────────► reads the instruments, writes the result, ends the process

So nothing that the program does when it is interrupted (it catches every exception, runs `finally`, exits) can spoil
what was measured; and it has the thread that signal handlers and forked loader workers need.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NoReturn

_asked: SimpleQueue[Callable[[], None]] = SimpleQueue()
_is_lent = False


def lend(work: Callable[[], object]) -> NoReturn:
    """Run `work`, which ends the process, in a second thread; this thread then runs what `Guest.run` is given."""
    global _is_lent
    _is_lent = True
    threading.Thread(target=work, name="autotune", daemon=True).start()
    while True:
        _asked.get()()


class Guest:
    """A program that runs in the main thread (or, where that is not lent, in one of its own)."""

    def __init__(self, *, goes_on: bool = False) -> None:
        """`goes_on`: it returns into the program when it is enough, because others wait for what it does."""
        self.goes_on = goes_on
        self.is_over = False  # it was enough
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(self, body: Callable[[], None]) -> None:
        """Wait until `body` returns, or calls `leave`. Raises what it raises, or left with."""
        born = os.getpid()

        def whole() -> None:
            error: BaseException | None = None
            try:
                body()
            except BaseException as raised:  # of any kind: it is raised again where it is waited for
                error = raised
            if os.getpid() != born:  # a process that the program forked came to the program's end, too
                os._exit(0)
            self._ended.put(error)

        if _is_lent:
            _asked.put(whole)
        else:
            threading.Thread(target=whole, daemon=True).start()
        if (error := self._ended.get()) is not None:
            raise error

    def end(self, error: BaseException) -> None:
        """End the waiting for the program, from any other thread; the program goes on until the process ends."""
        self._ended.put(error)

    def finish(self) -> None:
        """End the measurement from within the program. Returns only if the program goes on."""
        self.is_over = True
        if not self.goes_on:
            self.leave()
        self._ended.put(None)

    def leave(self, error: BaseException | None = None) -> NoReturn:
        """End the waiting for the program from within it, and never return to it."""
        self._ended.put(error)
        held = threading.Lock()
        held.acquire()
        while True:
            try:
                held.acquire()  # a signal handler of the program's may run meanwhile, and raise
            except BaseException:  # whatever that handler raises: this thread must never go on
                continue
