"""Finds and kills all processes of one probe, also those that left its process group."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

import psutil

from autotune.core.probe_tag import TAG
from autotune.errors import EnvironmentUnfit

KILLED_WITHIN_SECONDS = 30.0  # a process that survives SIGKILL for longer is stuck inside the kernel
_SWEEPS = 50  # over all processes, until none is left: the next sweep finds one that is being forked
_PAUSE_SECONDS = 0.01  # at most, between sweeps: most killed processes are gone after 1 to 2 ms
# A process that executes a program shows no variables until it has begun: under 1 ms, if it gets a core.
_EXEC_SECONDS = 0.1


class Leader(Protocol):
    """The first process of a probe: the part of `subprocess.Popen` that is used, and that a forked process has too."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit status. Raises `subprocess.TimeoutExpired`."""
        ...

    def send_signal(self, number: int, /) -> None:
        """Send a signal, unless the process has ended."""
        ...


def tagged(tag: str) -> list[psutil.Process]:
    """Return the living processes of this user that carry `tag`, without this one."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(TAG) == tag:
                found.append(process)
    return found


def carries(pid: int, tag: str) -> bool:
    """Return whether the process `pid` lives, is this user's, and carries `tag`."""
    with suppress(psutil.Error, OSError):
        return bool(psutil.Process(pid).environ().get(TAG) == tag)
    return False


def only_leader(leader: int) -> list[int]:
    """Return the process id `leader` alone, without those that it started."""
    return [leader]


def family(leader: int) -> list[int]:
    """Return the process ids of `leader` and its descendants."""
    with suppress(psutil.Error):
        return [leader, *(child.pid for child in psutil.Process(leader).children(recursive=True))]
    return [leader]


def kill_all(leader: Leader | None, tag: str) -> None:
    """Kill a probe with all its descendants, its process group, and all processes that carry its tag.

    A process that was starting a program when its leader was killed is found by a second look. Raises
    `EnvironmentUnfit` if the leader cannot be killed.
    """
    strays = _descendants(leader) if leader else []
    ended, looks = {process.pid for process in strays}, 1 + (leader is not None and leader.poll() is None)
    if leader:
        with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM if only a zombie is left in the group
            os.killpg(leader.pid, signal.SIGKILL)  # it was started in a session, and so in a group, of its own
    for sweep in range(_SWEEPS):
        for process in strays:
            with suppress(psutil.Error):
                process.kill()
        strays = tagged(tag)
        ended |= {process.pid for process in strays}
        looks -= not strays
        if not looks:
            break
        time.sleep(min(_PAUSE_SECONDS, 0.001 * 2**sweep) if strays else _EXEC_SECONDS)
    if leader:
        _reap_leader(leader)
        _reap_orphans(leader.pid, ended)


def insist(action: Callable[[], object]) -> None:
    """Carry out `action` to its end, however often Ctrl-C is pressed; the interrupt is raised afterwards."""
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            action()
            break
        except KeyboardInterrupt as again:
            interrupt = again
    if interrupt:
        raise interrupt


def _descendants(leader: Leader) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    with suppress(psutil.Error):
        found += psutil.Process(leader.pid).children(recursive=True)
    return found


def _reap_orphans(group: int, ended: Iterable[int]) -> None:
    """Take the exit statuses of orphans, if this process has to: as process 1 of a container, or as a subreaper.

    Wait for them by number and not for any child: the children of other threads and of the user's code are not this
    module's to wait for. The orphans were killed a moment ago, and may need another moment to end.
    """
    for number in (-group, *ended):
        waits = 0
        with suppress(ChildProcessError):  # none of that number is a child of this process, or none is left
            while waits < _SWEEPS:
                if not os.waitpid(number, os.WNOHANG)[0]:
                    time.sleep(_PAUSE_SECONDS)
                    waits += 1


def _reap_leader(leader: Leader) -> None:
    try:
        leader.wait(KILLED_WITHIN_SECONDS)
    except subprocess.TimeoutExpired:
        raise EnvironmentUnfit(
            f"The probe process {leader.pid} still exists {KILLED_WITHIN_SECONDS:.0f} s after SIGKILL. "
            f"It is stuck inside the kernel, probably in the driver of the device or in a network file system. "
            f"Look at the kernel's log (`dmesg`), and reset the device or restart the machine before searching on."
        ) from None
