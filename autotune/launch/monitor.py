"""Watches a running probe: it follows its progress pipe and sees when it has ended, or was silent for too long.

A probe writes `phase NAME` and `step` lines. Each is a sign of life; the deadline of the phase counts from the last
one. The first step of a training may take longer than the others.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from autotune.core.requests import ProbeBudget
from autotune.launch.processes import Leader, only_leader
from autotune.machine.host import host_memory, process_bytes
from autotune.units import format_bytes

TICK_SECONDS = 0.25  # between two looks at the process, if the pipe does not wake this one
LEAVE_SECONDS = 5.0  # for a probe to exit after its result is written; a loader's tear-down can hang (measured)
STACKS_SECONDS = 1.0  # at most, until the stacks of a silent probe are in its log
_READ_BYTES = 2**16


class Monitor:
    """The state of one running probe. `process` has started, `pipe` is the read end of its progress pipe."""

    def __init__(
        self, process: Leader, pipe: int, budget: ProbeBudget, result: Path,
        on_phase: Callable[[str], None] = lambda name: None, limit_bytes: int | None = None,
        processes: Callable[[int], Iterable[int]] = only_leader,
    ) -> None:  # fmt: skip
        """`on_phase` is called with each phase as it begins, and must not wait.

        `limit_bytes` of the host's memory hold for all `processes` that train, found from the first of them.
        """
        self.phase = "start"
        self.timed_out = ""  # why the probe was given up; empty if it was not
        self.outgrown = ""  # how it exceeded its limit, for which it was given up; empty if it did not
        self.returncode: int | None = None  # if the probe ended by itself; None if it had to be ended
        self.has_stepped = False  # whether it reported an optimizer step
        self.host_available_share = 1.0  # the least seen, 0..1
        self._process, self._pipe, self._budget, self._result = process, pipe, budget, result
        self._on_phase, self._limit_bytes, self._processes = on_phase, limit_bytes, processes
        self._began = self._last_sign = self._phase_began = time.monotonic()
        self._finished: dict[str, float] = {}
        self._unread = b""
        self._listening = True
        self._next_look = self._began
        self._poll = select.poll()  # select() does not accept descriptors from 1024 on
        self._poll.register(pipe, select.POLLIN)
        os.set_blocking(pipe, False)

    @property
    def phase_seconds(self) -> dict[str, float]:
        """The seconds in each phase so far, as seen from outside."""
        present = self._finished.get(self.phase, 0.0) + time.monotonic() - self._phase_began
        return {**self._finished, self.phase: present}

    def until_end(self) -> None:
        """Return when the process has ended, or has had time to exit after its result, or is out of time or memory."""
        leave_by: float | None = None
        while (code := self._process.poll()) is None:
            now = time.monotonic()
            self._look_at_memory(now)
            if self.outgrown:
                return
            if leave_by is None and self._result.exists():
                leave_by = now + LEAVE_SECONDS
            if leave_by is not None:
                if now >= leave_by:
                    return
            elif now >= self._deadline():
                self._listen()  # if this process was stopped, or got no core, signs of life wait to be read
                if now >= self._deadline():
                    self.timed_out = self._reason(now)
                    return
            self._wait(max(0.0, min(TICK_SECONDS, (leave_by or self._deadline()) - now)))
        self.returncode = code
        self._listen()

    def show_stacks(self, log_bytes: Callable[[], int]) -> None:
        """Make the silent probe write the stacks of all its threads into its log, if it still can."""
        before = size = log_bytes()
        give_up = time.monotonic() + STACKS_SECONDS
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
        while self._process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.05)
            previous, size = size, log_bytes()
            if before < size == previous:
                return

    def _deadline(self) -> float:
        total = self._began + self._budget.total_deadline_seconds
        return min(total, self._last_sign + self._patience()) if self._listening else total

    def _patience(self) -> float:
        budget = self._budget
        known = {
            "start": budget.start_deadline_seconds,
            "load": budget.load_deadline_seconds,
            "build": budget.build_deadline_seconds,
        }
        step = budget.step_deadline_seconds
        return known.get(self.phase, step if self.has_stepped else max(budget.first_step_deadline_seconds, step))

    def _reason(self, now: float) -> str:
        if now >= self._began + self._budget.total_deadline_seconds:
            return f"the probe took more than {self._budget.total_deadline_seconds:g} s in all"
        return f"no sign of life for {self._patience():g} s"

    def _look_at_memory(self, now: float) -> None:
        if now >= self._next_look:
            self._next_look = now + TICK_SECONDS
            memory = host_memory()
            self.host_available_share = min(self.host_available_share, memory.available_bytes / memory.total_bytes)
            pids = self._processes(self._process.pid) if self._limit_bytes else ()
            used = sum(process_bytes("RssAnon", "RssShmem", pid=pid) or 0 for pid in pids)
            if self._limit_bytes is not None and used > self._limit_bytes:
                self.outgrown = (
                    f"it held {format_bytes(used)}, more than the limit of {format_bytes(self._limit_bytes)}"
                )

    def _wait(self, seconds: float) -> None:
        if self._listening:
            if self._poll.poll(seconds * 1000):
                self._listen()
        else:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)

    def _listen(self) -> None:
        """Read the available lines. The end of the pipe only means that no process will write to it again."""
        while self._listening:
            try:
                chunk = os.read(self._pipe, _READ_BYTES)
            except BlockingIOError:
                return
            self._listening = chunk != b""
            *lines, rest = (self._unread + chunk).split(b"\n")
            self._unread = rest[-_READ_BYTES:]
            for line in lines:
                self._sign(line.decode("utf-8", "replace"))

    def _sign(self, line: str) -> None:
        word, _, name = line.partition(" ")
        if word not in ("phase", "step"):  # a target wrote to a descriptor that is not its own
            return
        self._last_sign = time.monotonic()
        self.has_stepped = word == "step" or (self.has_stepped and name not in ("load", "build"))
        if word == "phase" and name.isprintable() and name:
            self._finished = self.phase_seconds
            self.phase, self._phase_began = name, self._last_sign
            self._on_phase(name)
