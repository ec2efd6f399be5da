"""Ends a probe when the search that started it has ended, and reports the phase of the probe to that search.

Imports almost only the standard library, because it is imported before torch: a probe that hangs or dies while it
imports torch is covered, too.

    the search ──lifeline pipe──► guard        end of file = the search is gone: kill the probe, then what escaped it
        ▲                          ┆ (forked once, not a child of the probe)
        └────progress pipe──── the probe ──fork──► loader workers (each with its own parent-death signal)
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from autotune.core.probe_tag import TAG
from autotune.core.socket_folders import take_sockets_away

EXIT_ORPHANED = 113
_BEAT_SECONDS = 0.1  # between heartbeats that are written: they must not slow short steps
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_MOST_DESCRIPTORS = 4096  # that are closed in the guard; our pipes are among the first
_SWEEPS = 5  # over all processes: one that is being forked during a sweep is found by the next


def harden(lifeline: int | None, parent: int | None) -> None:
    """Make this process die with process `parent`, show its stacks on SIGUSR1, and leave no core file.

    To be called once, before any thread is started.

    `lifeline` is the read end of a pipe whose write end only the parent holds. Either argument may be None (run by
    hand); if not, this process must lead a process group of its own. Exits at once with `EXIT_ORPHANED` if the parent
    has already ended.

    Not covered: without Linux's /proc, a process that left the probe's group survives a SIGKILL of the parent.
    """
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))  # else each crash leaves its memory in the user's folder
    if lifeline is not None:
        with suppress(OSError):  # no process could be made: the parent-death signal remains
            _start_guard(lifeline)
        with suppress(OSError):
            os.close(lifeline)
    if parent:
        _die_with_parent()
        if os.getppid() != parent:
            os._exit(EXIT_ORPHANED)


class Progress:
    """Tells the search that the probe lives, by lines on a pipe, and keeps the time that each phase took.

    It never fails and never waits, even if the pipe is closed or full. If the target closed the pipe and opened a file
    under the same descriptor number, that file is never written to. Processes that the target forked report nothing.
    """

    def __init__(self, descriptor: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._descriptor, self._clock = descriptor, clock
        self._owner = os.getpid()
        self._pipe = _identity(descriptor)
        self._finished: dict[str, float] = {}
        self._name, self._began = "start", clock()
        self._last_beat = -_BEAT_SECONDS
        if descriptor is not None:
            with suppress(OSError):
                os.set_inheritable(descriptor, False)
                os.set_blocking(descriptor, False)

    @property
    def current(self) -> str:
        """The present phase; `start` before the first was announced."""
        return self._name

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds spent in each phase so far, the present one included; a phase that came twice counts in full."""
        present = self._finished.get(self._name, 0.0) + self._clock() - self._began
        return {**self._finished, self._name: present}

    def phase(self, name: str) -> None:
        """Note that phase `name` begins, and the phase before it ends."""
        self._finished = self.seconds
        self._name, self._began = name, self._clock()
        self._write(f"phase {name}\n")

    def beat(self) -> None:
        """Report that an optimizer step was taken. Cheap: most calls write nothing."""
        now = self._clock()
        if now - self._last_beat >= _BEAT_SECONDS:
            self._last_beat = now
            self._write("step\n")

    def _write(self, line: str) -> None:
        if self._descriptor is None or self._owner != os.getpid() or self._pipe != _identity(self._descriptor):
            return
        with suppress(OSError):  # EPIPE: no reader; EAGAIN: the pipe is full of other lines
            os.write(self._descriptor, line.encode())


def _identity(descriptor: int | None) -> tuple[int, int] | None:
    """Return device and inode of the file open under `descriptor`; None: no file is."""
    if descriptor is None:
        return None
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _start_guard(lifeline: int) -> None:
    """Fork a process that waits for the end of the lifeline; it is forked twice, so that it is no child of the probe.

    It is a process and not a thread, because a thread cannot run while the probe holds the interpreter lock, and
    because forking loader workers from a process with threads is deprecated since Python 3.12.
    """
    probe = os.getpid()
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            guard(lifeline, probe)
    finally:
        os._exit(0)


def guard(lifeline: int, probe: int) -> None:
    """Wait for the end of the lifeline; then kill the probe's group, and all processes with the tag of this process."""
    os.closerange(0, lifeline)  # the log and the progress pipe must close when the probe ends, not when its guard does
    os.closerange(lifeline + 1, lifeline + _MOST_DESCRIPTORS)  # a search with many open files passes large numbers
    while os.read(lifeline, 1):
        pass
    with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM if only a zombie is left in the group
        os.killpg(probe, signal.SIGKILL)
    if os.environ.get(TAG) and Path("/proc/self/environ").exists():
        for _ in range(_SWEEPS):
            _kill_tagged(f"{TAG}={os.environ[TAG]}".encode())
            time.sleep(0.02)
        take_sockets_away(os.environ[TAG])


def _kill_tagged(tag: bytes) -> None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):  # ended meanwhile, or another user's
                if tag in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)


def _die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies, and its forks when this process dies. Linux only.

    The kernel forgets this setting at a fork, and sends the signal when the *thread* that forked ends
    (PR_SET_PDEATHSIG(2const)). So it is set anew only for processes forked by the main thread, which lives as long as
    the probe.
    """
    if sys.platform != "linux":
        return
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    main_thread = threading.get_ident()  # a forked process keeps the identity of the thread that forked it

    def arm() -> None:
        if threading.get_ident() == main_thread:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    arm()
    os.register_at_fork(after_in_child=arm)
