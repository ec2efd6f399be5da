"""Starts the ranks of one request: through the distributed launcher of a command, as it was typed, or one by one.

Both ways have the same interface: whether all ranks have ended, how each ended, and how much memory the launcher holds
itself. Imports no torch.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Protocol

import psutil

from autotune.child.ranks.rank_results import exit_status, failed_to_start
from autotune.core.records import Config
from autotune.core.requests import Request
from autotune.errors import EnvironmentUnfit, TargetError
from autotune.machine.host import process_bytes
from autotune.machine.interference import LEADER
from autotune.machine.nvml import VISIBLE_DEVICES
from autotune.precision.records import PrecisionCheckRequest
from autotune.targets.commands.command import Command, is_command
from autotune.targets.commands.distributed import Launch
from autotune.targets.commands.program import configured
from autotune.targets.ranks.world import RANKS_FOLDER_VARIABLE

RANK_END_SECONDS = 10.0  # for a distributed launcher to report how its ranks ended, once all are dead
ONE_MACHINE = "127.0.0.1"


class RankProcesses(Protocol):
    """The processes of the ranks, as the process that started them sees them."""

    count: int

    def start(self) -> Mapping[int, int]:
        """Start the ranks; return the process ids that are known by then, by rank."""
        ...

    def are_over(self) -> bool:
        """Whether no rank is running or will be started."""
        ...

    def settle(self) -> None:
        """Wait until it is known how the dead ranks ended; the caller has killed those that were alive."""
        ...

    def status(self, number: int, pid: int) -> int | None:
        """Return the exit status of a dead rank, or minus its signal, as in `subprocess`; None: unknown."""
        ...

    def own_bytes(self) -> int:
        """Return the peak in bytes of the launcher's own memory, as far as it belongs to the training."""
        ...

    def failed(self) -> Exception:
        """Return the error for ranks that have all ended before any began its work."""
        ...

    def close(self) -> None:
        """Wait for killed processes, so that none stays a zombie."""
        ...


class LauncherRanks:
    """Ranks that the distributed launcher of a command starts: as typed, with autotune as its script."""

    def __init__(self, request: Request[Any], folder: Path) -> None:
        """Raise `TargetError` for a command that starts no ranks."""
        assert request.target is not None, "it is a command"
        launch = configured(Command.parse(request.target), _config(request)).launch
        assert launch is not None, "it begins with a distributed launcher"
        self.launch: Launch = launch
        self.count, self._folder = launch.ranks, folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Mapping[int, int]:
        """Start the launcher; return no ids, because the ranks report theirs themselves."""
        # The last one of an option counts. A launcher that starts its ranks anew does not report how the first ones
        # ended; one without a folder for logs leaves one among the system's temporary files (torch 2.13).
        forced = ("--max_restarts=0", f"--log_dir={self._folder / 'logs'}")
        rank = ("-m", "autotune.child", "--ranks", str(self._folder))
        words = (sys.executable, "-m", self.launch.distributed.module, *self.launch.options, *forced, *rank)
        # A user's json.py must not shadow the standard library's; a rank removes the variable again.
        own = {LEADER: str(os.getpid()), "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, env={**os.environ, **own})
        return {}

    def are_over(self) -> bool:
        """Whether the launcher has ended."""
        return self._process is None or self._process.poll() is not None

    def settle(self) -> None:
        """Wait for the launcher, whose last lines say how its ranks ended."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(RANK_END_SECONDS)

    def status(self, number: int, pid: int) -> int | None:
        """Return the exit status that the launcher reported for process `pid`; None: it reported none."""
        return exit_status(pid)

    @property
    def own_status(self) -> int | None:
        """The exit status of the launcher itself; None: it runs."""
        return None if self._process is None else self._process.poll()

    def own_bytes(self) -> int:
        """Return the launcher's peak in bytes: it runs while its ranks train."""
        return process_bytes("VmHWM", pid=self._process.pid) or 0 if self._process else 0

    def failed(self) -> TargetError:
        """Return the error with the launcher's exit status, for a launcher that started no rank."""
        return failed_to_start(self.launch.label, self.own_status)

    def close(self) -> None:
        """Wait for the launcher, so that it does not stay a zombie."""
        if self._process is not None:
            self._process.wait()


class LocalRanks:
    """Ranks that this process starts itself, as torchrun would, but by forking with its imports if that is safe.

    They find one another through a file in `folder`, because another process could take a port. Each has the GPU of its
    number.
    """

    def __init__(self, request: Request[Any], folder: Path, become: Callable[[Path], NoReturn]) -> None:
        """`become` is the function that a forked process runs as a rank."""
        self.count, self._folder, self._become = request.ranks, folder, become
        self._is_cuda = (request.device or "").startswith("cuda")
        self._pids: dict[int, int] = {}
        self._ended: dict[int, int] = {}  # rank -> exit status

    def start(self) -> Mapping[int, int]:
        """Start all ranks; return their process ids by rank."""
        port = _free_port()
        for number in range(self.count):
            environ = self._environ(number, port)
            self._pids[number] = self._fork(environ) if _may_fork() else self._exec(environ)
        return self._pids

    def are_over(self) -> bool:
        """Whether all have ended."""
        return all(self.status(number, pid) is not None for number, pid in self._pids.items())

    def settle(self) -> None:
        """Return at once: how our own children ended is known immediately."""

    def status(self, number: int, pid: int) -> int | None:
        """Return its exit status, or minus its signal; None while it runs."""
        if number not in self._ended:
            with suppress(ChildProcessError):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    self._ended[number] = os.waitstatus_to_exitcode(status)
        return self._ended.get(number)

    def own_bytes(self) -> int:
        """Return 0: this process takes no part in the training."""
        return 0

    def failed(self) -> EnvironmentUnfit:
        """Return the error of ranks that were ended before they began."""
        return EnvironmentUnfit(
            f"{self.count} ranks were started and ended before they began. Something on this machine probably ends "
            f"processes. Start fewer of them with --ranks."
        )

    def close(self) -> None:
        """Wait for all ranks, so that none stays a zombie."""
        for number, pid in self._pids.items():
            if number not in self._ended:
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _environ(self, number: int, port: int) -> dict[str, str]:
        """Return the environment variables of a rank, including those that torchrun sets: user code may read them."""
        size = str(self.count)
        ours = {LEADER: str(os.getpid()), RANKS_FOLDER_VARIABLE: str(self._folder)}
        ours |= {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        ours |= {"GROUP_RANK": "0", "MASTER_ADDR": ONE_MACHINE, "MASTER_PORT": str(port)}
        if self._is_cuda:
            gpus = (os.environ.get(VISIBLE_DEVICES) or ",".join(map(str, range(self.count)))).split(",")
            if len(gpus) < self.count:
                raise EnvironmentUnfit(
                    f"{self.count} ranks need as many GPUs, and {VISIBLE_DEVICES} shows {len(gpus)}: {','.join(gpus)}. "
                    f"It was probably set for another run. Show {self.count}, or train with fewer ranks."
                )
            ours[VISIBLE_DEVICES] = gpus[number]
        return ours

    def _exec(self, environ: Mapping[str, str]) -> int:
        words = (sys.executable, "-P", "-m", "autotune.child", "--ranks", str(self._folder))
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, env={**os.environ, **environ})
        process.returncode = 0  # this class waits for its end, `subprocess` does not
        return process.pid

    def _fork(self, environ: Mapping[str, str]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.environ.update(environ)  # CUDA_VISIBLE_DEVICES comes in time: a GPU is chosen when first used
            self._become(self._folder)
        except BaseException:  # this is the main function of a forked process: no code above it may run on
            traceback.print_exc()
        finally:
            os._exit(1)


def processes_for(request: Request[Any], folder: Path, become: Callable[[Path], NoReturn]) -> RankProcesses:
    """Return the object that starts the ranks of that request."""
    return LauncherRanks(request, folder) if is_command(request.target or "") else LocalRanks(request, folder, become)


def lives(pid: int) -> bool:
    """Return whether the process exists and has not ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def send(pid: int | None, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, which may not have started or may have ended."""
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, number)


def _config(request: Request[Any]) -> Config | None:
    """Return the configuration for the distributed launcher's own options; None: as they were typed."""
    if isinstance(request, PrecisionCheckRequest):
        return request.candidate if request.roles == ("candidate",) else request.reference
    return getattr(request, "config", None)


def _may_fork() -> bool:
    """Return whether this process was forked with torch imported and has one thread, so that it may fork again."""
    return "torch" in sys.modules and len(list(Path("/proc/self/task").iterdir())) == 1


def _free_port() -> int:
    """Return a free port for user code that makes a process group itself; our group needs none."""
    with socket.socket() as free:
        free.bind((ONE_MACHINE, 0))
        return int(free.getsockname()[1])
