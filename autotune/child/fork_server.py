"""The fork server: imports once what all probes import, and forks one of them for each request.

    the launcher ──control socket: folder, tag, descriptors──► the fork server ──fork──► a probe, as if it were exec'd
        ▲                                                          │
        └──────── status socket of each probe: born, ended ────────┘

A fork copies one thread, and an accelerator does not work in it; open files and shared memory are common to all forks.
So the fork server has exactly one thread, no child, no device, and nothing open or shared, which is checked before
every fork (`safety.py`). After its imports, before it says `Ready`, it also forks a trial child, which computes with
several threads: the fork server is used only if that child has finished. It ends when its control socket does; if it
hangs, its guard ends it (`lifeline.py`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from autotune.child.collector import see_all, uncollected
from autotune.child.file_pages import resident_file_pages, touch
from autotune.child.library_threads import give_threads_back, no_library_threads, openblas_libraries
from autotune.child.lifeline import guard, harden
from autotune.child.safety import unsafe
from autotune.core import codec
from autotune.core.forking import MESSAGE_BYTES, Born, Ended, ForkRequest, Imports, Ready, Refused
from autotune.core.probe_tag import TAG
from autotune.core.records import Record
from autotune.targets import allocators, variables

TRIAL_SECONDS = 20.0  # for a forked child to compute in parallel: it takes milliseconds, or hangs for ever
DESCRIPTOR_COUNT = 4  # log, lifeline, progress pipe, status socket
OF_ALL_PROBES = ("torch", "autotune.child.run", "autotune.targets.build", "autotune.targets.inspection")
Main = Callable[[Sequence[str]], int]


def serve(control: int, lifeline: int, main: Main, prepare: Callable[[Imports, frozenset[int]], Ready]) -> None:
    """Import, say `Ready`, and fork a process that runs `main` for each request, until the launcher is gone."""
    harden(lifeline, None)
    launcher = socket.socket(fileno=control)
    launcher.set_inheritable(False)
    ready = prepare(codec.decode(launcher.recv(MESSAGE_BYTES), Imports), frozenset({control}))
    try:
        pages = resident_file_pages()
    except OSError as error:
        ready = Ready(unsafe=f"the kernel does not show which pages are resident: {error.strerror}")
    with suppress(AttributeError):  # glibc only. Frees 4 to 6 MiB of imports that probes would hold
        ctypes.CDLL(None).malloc_trim(0)
    launcher.send(codec.encode(ready))
    if not ready.unsafe:
        _ForkServer(launcher, main, pages).run()


def prepare(imports: Imports, own: frozenset[int]) -> Ready:
    """Import torch and the target's imports; return whether forks are safe afterwards. `own`: our own sockets."""
    with no_library_threads(), uncollected():
        for name in OF_ALL_PROBES:
            import_module(name)
        if reason := unsafe(own):
            return Ready(unsafe=f"with torch imported, the fork server {reason}")
        for number, statement in enumerate(imports.statements):
            before, set_before = set(sys.modules), variables.read_early()
            try:
                with _called(imports.program):
                    exec(statement, {"__name__": __name__})
                variables.hide(set_before)
                name = variables.changed_variable(set_before)
                reason = f"has set {name}" if name else unsafe(own)
            except Exception as error:
                reason = f"failed with {type(error).__name__}"
            found = {name.partition(".")[0] for name in set(sys.modules) - before}
            if not reason and (others := sorted(found.intersection(imports.beside))):
                reason = f"has another {others[0]} than a probe would find"
            if reason:
                return Ready(unsafe=f"after `{statement}` the fork server {reason}", safe_statements=number)
    if imports.statements:
        variables.hold()
    from autotune.targets.importing import remember_modules  # it imports torch

    for find_once in (see_all, remember_modules, openblas_libraries):  # inherited by every probe that is forked here
        find_once()
    return _trial()


class _ForkServer:
    def __init__(self, launcher: socket.socket, main: Main, pages: list[tuple[int, int]]) -> None:
        self._launcher, self._main, self._pages = launcher, main, pages
        self._pid = os.getpid()  # read before a fork: a probe whose fork server has ended would see another parent
        self._running: dict[int, tuple[int, int | None]] = {}  # pidfd -> process, status socket; a guard has none
        self._poll = select.poll()
        self._poll.register(launcher, select.POLLIN)

    def run(self) -> None:
        """Fork and reap until the control socket ends."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor != self._launcher.fileno():
                    self._reap(descriptor)
                    continue
                message, descriptors, _, _ = socket.recv_fds(self._launcher, MESSAGE_BYTES, DESCRIPTOR_COUNT)
                if not message:
                    return
                *inherited, status = descriptors
                self._fork(codec.decode(message, ForkRequest), inherited, status)
                for passed in inherited:
                    os.close(passed)

    def _fork(self, request: ForkRequest, inherited: list[int], status: int) -> None:
        processes = [pid for pid, _ in self._running.values()]
        own = (self._launcher.fileno(), *inherited, status, *self._running, *self._sockets())
        refusal = None
        if reason := unsafe(own, processes):
            refusal = Refused(reason=f"the fork server {reason}", for_good=True)
        else:
            try:
                pid = os.fork()
            except OSError as error:
                refusal = Refused(reason=f"no process could be forked: {error.strerror}", for_good=False)
        if refusal:
            _say(status, refusal)
            os.close(status)
            return
        if pid == 0:
            self._become(request, inherited, status)
        self._watch(pid, status)
        with suppress(OSError):  # no process could be made: the parent-death signal remains
            self._start_guard(pid, inherited[1], request.tag)

    def _start_guard(self, probe: int, lifeline: int, tag: str) -> None:
        """Fork the guard of a probe: the probe itself would have to fork twice, which takes 30 ms (`lifeline.py`)."""
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                _carry(tag)
                guard(lifeline, probe)
            finally:
                os._exit(0)
        self._watch(pid, None)

    def _watch(self, pid: int, status: int | None) -> None:
        pidfd = os.pidfd_open(pid)
        self._running[pidfd] = pid, status
        self._poll.register(pidfd, select.POLLIN)

    def _sockets(self) -> list[int]:
        return [status for _, status in self._running.values() if status is not None]

    def _reap(self, pidfd: int) -> None:
        self._poll.unregister(pidfd)
        pid, status = self._running.pop(pidfd)
        _, code = os.waitpid(pid, 0)
        os.close(pidfd)
        if status is not None:
            _say(status, Ended(status=os.waitstatus_to_exitcode(code)))
            os.close(status)

    def _become(self, request: ForkRequest, inherited: list[int], status: int) -> NoReturn:
        """Turn this process into the equivalent of an exec'd child, from its session to its exit."""
        code, (log, lifeline, progress) = 1, inherited
        try:
            os.setsid()
            try:
                _carry(request.tag)
            except OSError as error:
                _say(
                    status,
                    Refused(reason=f"the fork server cannot be told from its forks: {error.strerror}", for_good=True),
                )
                leave(code)
            for stream in (1, 2):
                os.dup2(log, stream)
            own = os.pidfd_open(os.getpid())
            _say(status, Born(pid=os.getpid()), own)
            for number in (self._launcher.detach(), log, lifeline, status, own, *self._running, *self._sockets()):
                os.close(number)
            touch(self._pages)
            allocators.set_after_start(request.environ)
            words = ["--progress", str(progress), "--parent", str(self._pid)]
            before = len(sys.argv) - 1
            sys.argv[1:] = sys.orig_argv[-before:] = [request.folder, *words]
            code = self._main(sys.argv[1:])
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:  # this is the main function of a forked process: no code above it may run on
            traceback.print_exc()
        leave(code)


def leave(code: int) -> NoReturn:
    """End the process at once: tearing torch down takes half a second and can hang on loader workers (measured)."""
    with suppress(Exception):  # the target may have closed them
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


@contextmanager
def _called(program: str) -> Iterator[None]:
    """Set `sys.argv` to the command line that a library would see when the target imports it in a probe."""
    arguments, sys.argv = sys.argv, [program]
    try:
        yield
    finally:
        sys.argv = arguments


def _trial() -> Ready:
    """Return whether a forked child can compute in parallel. It takes milliseconds, or `TRIAL_SECONDS` if it hangs."""
    try:
        pid = os.fork()
    except OSError as error:
        return Ready(unsafe=f"no process could be forked: {error.strerror}", may_pass=True)
    if pid == 0:
        try:
            import numpy as np
            import torch

            give_threads_back()
            torch.ones(1 << 20).mul_(2).sum()
            np.ones((512, 512)) @ np.ones((512, 512))
            os._exit(0)
        finally:
            os._exit(1)
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    is_over = bool(poll.poll(TRIAL_SECONDS * 1000))
    os.close(pidfd)
    if not is_over:
        os.kill(pid, signal.SIGKILL)
    _, code = os.waitpid(pid, 0)
    if not is_over:
        return Ready(unsafe="a forked process hung when it computed with several threads")
    if status := os.waitstatus_to_exitcode(code):
        return Ready(unsafe=f"a forked process could not compute: {status}", may_pass=status == -signal.SIGKILL)
    return Ready()


def _carry(tag: str) -> None:
    """Set another tag than the fork server's, also in /proc, by overwriting the environment that exec left."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    place, before = getenv(TAG.encode()), os.environ[TAG]
    assert len(before) == len(tag), "a tag has one length"
    ctypes.memmove(place, tag.encode(), len(tag))
    os.environ[TAG] = tag
    if f"{TAG}={tag}".encode() not in Path("/proc/self/environ").read_bytes().split(b"\0"):
        raise OSError(errno.EFAULT, "an import has moved its environment variables")


def _say(descriptor: int, record: Record, *passed: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as peer:  # the launcher may be gone
        socket.send_fds(peer, [codec.encode(record)], passed)
