"""The fork servers of a launcher: started when first needed, asked to fork a probe, ended with the launcher.

The other side is `child/fork_server.py`. A forked probe is not a child of this process: its fork server reports how it
ended. If a fork server is killed, stopped or out of memory, its probe is lost and runs again in a fresh process.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from autotune.core import codec
from autotune.core.forking import MESSAGE_BYTES, Born, Ended, ForkReply, ForkRequest, Imports, Ready, Refused
from autotune.core.probe_tag import TAG
from autotune.core.requests import Request
from autotune.knobs import malloc
from autotune.launch.imports import imports_of
from autotune.launch.processes import insist, kill_all
from autotune.machine.host import process_bytes
from autotune.targets.commands.program import starts_ranks

READY_SECONDS = 300.0  # to import everything, also from a slow network disk
ANSWER_SECONDS = 30.0  # to fork: a large process that was swapped out takes seconds
STATUS_SECONDS = 5.0  # from a probe's end to its report: the fork server has nothing else to do
MOST_LOST_SERVERS = 3  # fork servers lost, after which no further one is started


class NoForkServer(Exception):
    """A process cannot be forked, and why. `for_good`: no later one can be, either."""

    def __init__(self, reason: str, *, for_good: bool = False) -> None:
        super().__init__(reason)
        self.for_good = for_good


class Forked:
    """A forked probe, used like a `subprocess.Popen`. `lost` says how its fork server was lost; empty if it was not."""

    def __init__(self, pid: int, pidfd: int, status: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.lost = ""
        self._pidfd, self._status = pidfd, status

    def poll(self) -> int | None:
        """Return the exit status as `Popen` has it; None while the probe runs."""
        if self.returncode is None and _readable(self._status.fileno(), 0):
            self._read_status()
        elif self.returncode is None and _readable(self._pidfd, 0):
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit status. Raises `subprocess.TimeoutExpired`."""
        if not _readable(self._pidfd, timeout):
            raise subprocess.TimeoutExpired("a forked probe", timeout or 0.0)
        if self.returncode is None and _readable(self._status.fileno(), STATUS_SECONDS):
            self._read_status()
        elif self.returncode is None:
            self._lose("its fork server hangs")
        assert self.returncode is not None, "set above"
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.close()
        os.close(self._pidfd)

    def _read_status(self) -> None:
        message = _received(self._status)
        if message:
            self.returncode = codec.decode(message, Ended).status
        else:
            self._lose("its fork server died")

    def _lose(self, how: str) -> None:
        self.lost, self.returncode = how, -signal.SIGKILL


class ForkServer:
    """One fork server. Raises `NoForkServer` if it does not become ready."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], imports: Imports) -> None:
        self.tag = uuid.uuid4().hex
        self.imported_anew = ""  # why each probe imports for itself; empty if it does not
        self._process: subprocess.Popen[bytes] | None = None
        self._open = ExitStack()
        began = time.monotonic()
        try:
            self._start(command, {**environ, TAG: self.tag}, imports)
        except BaseException:  # also an interrupt: no process is left behind
            self.close()
            raise
        self.seconds = time.monotonic() - began  # until it was ready

    @property
    def resident_bytes(self) -> int | None:
        """The bytes that it holds, which a forked probe shares until it writes to them; None if unknown."""
        return process_bytes("VmRSS", pid=self._process.pid) if self._process else None

    def fork(self, folder: Path, tag: str, descriptors: Sequence[int], environ: Mapping[str, str]) -> Forked:
        """Return the forked probe of `folder`, with log, lifeline and progress pipe. Raises `NoForkServer`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as on_failure:
            on_failure.callback(ours.close)
            with theirs:
                asked = ForkRequest(folder=str(folder.absolute()), tag=tag, environ=malloc.after_start(environ))
                try:
                    socket.send_fds(self._control, [codec.encode(asked)], [*descriptors, theirs.fileno()])
                except OSError as error:
                    raise NoForkServer("the fork server died") from error
            if not _readable(ours.fileno(), ANSWER_SECONDS):
                raise NoForkServer(f"the fork server did not answer within {ANSWER_SECONDS:g} s")
            try:
                message, pidfds, _, _ = socket.recv_fds(ours, MESSAGE_BYTES, 1)
            except OSError as error:
                raise NoForkServer("the fork server died") from error
            reply: ForkReply | None = codec.decode(message, ForkReply) if message else None
            if isinstance(reply, Refused):
                raise NoForkServer(reply.reason, for_good=reply.for_good)
            if not isinstance(reply, Born):
                raise NoForkServer("the forked process died at once" if reply else "the fork server died")
            on_failure.pop_all()
            return Forked(reply.pid, pidfds[0], ours)

    def close(self) -> None:
        """End it and its guard; probes that it forked end with it."""
        self._open.close()
        insist(lambda: kill_all(self._process, self.tag))

    def _start(self, command: Sequence[str], environ: Mapping[str, str], imports: Imports) -> None:
        """Start it with all imports; if that fails, again with as many as are safe."""
        while (ready := self._exec(command, environ, imports)).unsafe:
            if ready.safe_statements is None:
                raise NoForkServer(ready.unsafe, for_good=not ready.may_pass)
            imports = replace(imports, statements=imports.statements[: ready.safe_statements])
            self.imported_anew = f"each imports the rest anew, for {ready.unsafe}"
            self._open.close()
            insist(lambda: kill_all(self._process, self.tag))

    def _exec(self, command: Sequence[str], environ: Mapping[str, str], imports: Imports) -> Ready:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = self._open.enter_context(ours)
        lifeline, held = os.pipe()
        self._open.callback(os.close, held)
        words = ("--fork-server", str(theirs.fileno()), "--lifeline", str(lifeline))
        with theirs:
            try:
                self._process = subprocess.Popen(
                    (*command, *words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    start_new_session=True, pass_fds=(theirs.fileno(), lifeline), env=environ,
                )  # fmt: skip
            except OSError as error:
                raise NoForkServer(f"the fork server could not be started: {error.strerror or error}") from error
            finally:
                os.close(lifeline)
        with suppress(OSError):  # it died, so there is no answer either
            ours.send(codec.encode(imports))
        if not _readable(ours.fileno(), READY_SECONDS):
            raise NoForkServer(f"the fork server was not ready within {READY_SECONDS:g} s", for_good=True)
        message = _received(ours)
        if not message:
            status = self._process.wait()
            was_killed = status in (-signal.SIGKILL, -signal.SIGTERM)  # for lack of memory, or by hand: no own fault
            raise NoForkServer(f"the fork server died while it imported: exit status {status}", for_good=not was_killed)
        ready: Ready = codec.decode(message, Ready)
        return ready


class ForkServers:
    """One fork server for each working folder, environment and list of imports. Safe for threads."""

    def __init__(self, command: Sequence[str]) -> None:
        self.unused_because = unsupported()  # why all further probes are fresh processes; empty if they are not
        self._command = command
        self._lock = threading.Lock()
        self._started: dict[object, ForkServer] = {}
        self._imports: dict[tuple[Path, str | None], Imports] = {}
        self._probes = 0  # running now
        self._lost = 0

    @property
    def running(self) -> tuple[ForkServer, ...]:
        """The fork servers that have been started and have not ended."""
        return tuple(self._started.values())

    @property
    def resident_bytes(self) -> int:
        """The bytes that all running fork servers hold."""
        return sum(fork_server.resident_bytes or 0 for fork_server in self.running)

    @contextmanager
    def lent(self, request: Request[Any], environ: Mapping[str, str]) -> Iterator[ForkServer]:
        """Yield a fork server for the request. Raises `NoForkServer`."""
        target = getattr(request, "target", None)
        if starts_ranks(target or ""):
            raise NoForkServer("its distributed launcher starts the processes that train")
        with self._lock:
            if self.unused_because:
                raise NoForkServer(self.unused_because)
            fork_server = self._for(target, environ)
            self._probes += 1
        try:
            yield fork_server
        finally:
            with self._lock:
                self._probes -= 1
                if self.unused_because and not self._probes:
                    self._end_all()

    def stay_fresh(self, reason: str) -> None:
        """Fork no further probe: later ones start as fresh processes, for this reason."""
        self.unused_because = self.unused_because or reason

    def lose(self, fork_server: ForkServer, reason: str, *, for_good: bool = False) -> None:
        """End a useless fork server; unless `for_good`, another one is started for the next probe."""
        with self._lock:
            if for_good or fork_server in self.running:  # several probes may lose the same one
                self._count_lost(reason, for_good)
            self._started = {key: other for key, other in self._started.items() if other is not fork_server}
        fork_server.close()

    def close(self) -> None:
        """End all fork servers."""
        with self._lock:
            self._end_all()

    def _for(self, target: str | None, environ: Mapping[str, str]) -> ForkServer:
        place = Path.cwd(), target  # `target` is relative to it
        if (imports := self._imports.get(place)) is None:
            imports = self._imports[place] = imports_of(target)
        early = dict(environ.items() - malloc.after_start(environ).items())
        key = Path.cwd(), imports, frozenset(early.items())
        if key not in self._started:
            try:
                self._started[key] = ForkServer(self._command, early, imports)
            except NoForkServer as error:
                self._count_lost(str(error), error.for_good)
                if self.unused_because and not self._probes:
                    self._end_all()
                raise
        return self._started[key]

    def _count_lost(self, reason: str, for_good: bool) -> None:
        self._lost += 1
        if for_good:
            self.stay_fresh(reason)
        elif self._lost >= MOST_LOST_SERVERS:
            self.stay_fresh(f"{self._lost} fork servers were lost, the last because {reason}")

    def _end_all(self) -> None:
        def end() -> None:
            while self._started:
                key = next(iter(self._started))
                self._started[key].close()
                del self._started[key]

        insist(end)


def unsupported() -> str:
    """Return why processes cannot be forked here; empty if they can."""
    if sys.platform != "linux":
        return "forked probes need Linux"
    kernel = tuple(int(part) for part in os.uname().release.partition("-")[0].split(".")[:2])
    return "" if kernel >= (5, 14) else "forked probes need Linux 5.14, for their memory to be counted"


def _readable(descriptor: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _received(peer: socket.socket) -> bytes:
    """Return the next message; empty if there will be none."""
    try:
        return peer.recv(MESSAGE_BYTES)
    except OSError:
        return b""
