"""Runs each probe in a process of its own, and reads how it ended, in any case.

    store request ─► start ─► monitor ─► (silent: stacks into the log) ─► kill what is left ─► result, or our verdict

A start either executes Python anew (fresh), or forks a server that has torch imported already (fork). A process of its
own is needed because a failed probe leaves fragments, poisoned device contexts and pinned memory behind (measured: 1.6
GB held by one exception), and because settings such as PYTORCH_ALLOC_CONF are read once per process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Self

from msgspec.structs import replace

from autotune import interrupts
from autotune.core import codec
from autotune.core.probe_tag import TAG
from autotune.core.requests import ProbeRequest, Request, ResultT, patient
from autotune.core.results import Isolation, Outcome
from autotune.core.socket_folders import take_sockets_away
from autotune.errors import EnvironmentUnfit, StudyError
from autotune.knobs import environ
from autotune.launch.base import REQUEST, RESULT
from autotune.launch.files import log_tail, new_pipe, open_log, store, take_outputs_away, tidy
from autotune.launch.fork_servers import Forked, ForkServer, ForkServers, NoForkServer
from autotune.launch.imports import variables_of
from autotune.launch.monitor import Monitor
from autotune.launch.oom import oom_kills
from autotune.launch.probe_end import ProbeEnd, judge_end, timed, told_of_kills, with_evidence
from autotune.launch.processes import Leader, carries, family, insist, kill_all, only_leader
from autotune.launch.telemetry import Telemetry
from autotune.machine.host import CORES, usable_cores
from autotune.machine.nvml import find_gpu, library
from autotune.targets.commands import hygiene
from autotune.targets.commands.command import is_command
from autotune.targets.commands.program import of_ranks

_TRACEBACK_BYTES = 4096  # of the log's end, kept in the failure of a probe that left no result
# As the imports of one rank: those of two on two cores that others used, too, took 20.9 s, of one 11.2 s.
MOST_TIMES_AS_LONG = 2
_ENVIRON = {
    "PYTHONUNBUFFERED": "1",  # what was printed before a crash is then in the log
    "PYTHONDONTWRITEBYTECODE": "1",  # nothing is then written outside of the study's folder
    "PYTHONFAULTHANDLER": "1",  # a crash before the probe sets its own handler then shows its stack too
}


class SubprocessLauncher:
    """The launcher for this machine. It may be used from several threads; a probe runs in the thread that asks for it.

    With `isolation` "fork" it owns fork servers: use it as a context manager, which ends them.

    That thread must live as long as the probe: Linux kills a process whose parent-death signal is set when the *thread*
    that started it ends. `command` replaces `python -m autotune.child`, `environ` adds variables and `nvml` returns the
    driver's library; all are for tests and for running probes under another tool (a profiler, `numactl`).
    """

    # For a forked process that took no step: forking may be the cause.
    doubted = frozenset(outcome for outcome in Outcome if outcome is not Outcome.OK and not outcome.out_of_memory)

    def __init__(
        self, *, command: Sequence[str] | None = None, environ: Mapping[str, str] | None = None,
        nvml: Callable[[], Any | None] = library, step_timeout_seconds: float | None = None,
        isolation: Isolation = "fresh", cwd: Path | None = None,
    ) -> None:  # fmt: skip
        """`step_timeout_seconds` replaces the budget's limit for a silent micro-batch; `cwd`: of fresh processes."""
        # -P: the user's json.py or autotune.py must not replace the real one; targets put their own folder on the path.
        self._command = tuple(command or (sys.executable, "-P", "-m", "autotune.child"))
        self._environ = dict(environ or {})
        self._nvml, self._step_timeout_seconds, self._cwd = nvml, step_timeout_seconds, cwd
        self.fork_servers = ForkServers(self._command) if isolation == "fork" else None
        self._confirmed = set[tuple[object, ...]]()  # ends of forked processes that a fresh one had, too

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all fork servers."""
        if self.fork_servers is not None:
            self.fork_servers.close()

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        """Run the request in a process of its own, and return its result; see `Launcher`."""
        interrupts.check()
        result, reason = self._forked(request, folder, self.fork_servers) if self.fork_servers else (None, "")
        if result is None:
            result = replace(self._result(request, folder)[0], isolation="fresh", isolation_reason=reason)
        store(folder, RESULT, result)
        return result

    def _forked(self, request: Request[ResultT], folder: Path, servers: ForkServers) -> tuple[ResultT | None, str]:
        """Return the result of a forked process; None, with the reason, if a fresh process has to be asked instead.

        A probe may fail before its first step because it was forked: the result of a fresh one counts, and may end all
        forking. A failure that a fresh one has had, too, is not doubted again, nor is one where there is no time to.
        """
        began = time.monotonic()
        try:
            early = hygiene.before_imports(request, self._environment(request))  # the rest is set after the fork
            with servers.lent(request, early) as fork_server:
                try:
                    result, ending = self._result(request, folder, fork_server)
                except NoForkServer as error:
                    servers.lose(fork_server, str(error), for_good=error.for_good)
                    raise
                if ending.lost:
                    servers.lose(fork_server, ending.lost)
                    if result.failure is not None:
                        raise NoForkServer(ending.lost)
                end = (type(request), request.target, request.process_config(), result.outcome)
                is_doubted = result.outcome in self.doubted and not ending.has_stepped and end not in self._confirmed
                importing = fork_server.seconds * min(request.ranks, MOST_TIMES_AS_LONG)
                if is_doubted and _has_time(request, time.monotonic() - began, importing + ending.elapsed_seconds):
                    ended = f"{result.outcome}: {result.failure and result.failure.message}"
                    reason = f"a forked process ended before its first step: {ended}"
                    fresh, _ = self._result(request, folder)
                    if fresh.outcome is not result.outcome:
                        servers.stay_fresh(reason)
                    else:
                        self._confirmed.add(end)
                    return replace(fresh, isolation="fresh", isolation_reason=reason), ""
                return replace(result, isolation="fork", isolation_reason=fork_server.imported_anew), ""
        except NoForkServer as error:
            return None, str(error)

    def _result(
        self, request: Request[ResultT], folder: Path, fork_server: ForkServer | None = None
    ) -> tuple[ResultT, ProbeEnd]:
        """Run one process; return its result, or the failure that its end means, and that end."""
        ending = self._run(request, folder, fork_server)
        found = _read(folder, request.kind().result)
        if isinstance(found, str):
            found = request.failed(ending.outcome, with_evidence(ending.failure, found))
        seen = {"gpu": ending.gpu} if isinstance(request, ProbeRequest) else {}
        return replace(timed(told_of_kills(found, ending), ending), **seen), ending

    def _environment(self, request: Request[Any]) -> dict[str, str]:
        values = request.process_config().values
        shared = threads_of_a_rank(request) if of_ranks(request) and "OMP_NUM_THREADS" not in os.environ else {}
        own = {**_ENVIRON, CORES: str(usable_cores())}
        early = variables_of(request.target)
        return {**os.environ, **own, **shared, **early, **self._environ, **hygiene.environ(request), **environ(values)}

    def _run(self, request: Request[Any], folder: Path, fork_server: ForkServer | None) -> ProbeEnd:
        """Run one process from the request to its end, after which no process is left.

        An interrupt leaves neither request nor result: a request alone means that the searching process died.
        """
        if self._step_timeout_seconds is not None:
            request = replace(request, budget=patient(request.budget, self._step_timeout_seconds))
        store(folder, REQUEST, request)
        log, tag = open_log(folder), uuid.uuid4().hex
        telemetry = self._telemetry(request, tag)
        kills_before, began, started_at = oom_kills(), time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
        try:
            with log, self._started(request, folder, log, tag, telemetry, fork_server) as (process, monitor):
                monitor.until_end()
                if monitor.timed_out:
                    monitor.show_stacks(lambda: os.fstat(log.fileno()).st_size)
        except BaseException:  # also an interrupt: a probe that was interrupted leaves neither request nor result
            (folder / REQUEST).unlink(missing_ok=True)
            (folder / RESULT).unlink(missing_ok=True)
            take_outputs_away(folder)
            raise
        finally:
            if telemetry:
                telemetry.stop()
        kills_after = oom_kills()
        kills = None if kills_before is None or kills_after is None else kills_after - kills_before
        tail = log_tail(folder, _TRACEBACK_BYTES)
        tidy(folder)
        outcome, failure = judge_end(monitor, kills, tail, folder)
        return ProbeEnd(
            outcome=outcome,
            failure=failure,
            phase_seconds={name: round(seconds, 3) for name, seconds in monitor.phase_seconds.items()},
            started_at=started_at,
            elapsed_seconds=time.monotonic() - began,
            oom_kills=kills,
            host_available_share=monitor.host_available_share,
            gpu=telemetry.use() if telemetry else None,
            has_stepped=monitor.has_stepped,
            lost=process.lost if isinstance(process, Forked) else "",
        )

    def _telemetry(self, request: Request[Any], tag: str) -> Telemetry | None:
        """Return the telemetry of a timed probe on an NVIDIA GPU; None for others."""
        if not isinstance(request, ProbeRequest) or not request.device.startswith("cuda"):
            return None
        gpu = find_gpu(nvml := self._nvml(), request.device_uuid)
        return None if gpu is None else Telemetry(nvml, gpu, lambda pid: carries(pid, tag))

    @contextmanager
    def _started(
        self, request: Request[Any], folder: Path, log: BinaryIO, tag: str, telemetry: Telemetry | None,
        fork_server: ForkServer | None,
    ) -> Iterator[tuple[Leader, Monitor]]:  # fmt: skip
        """Yield a running probe; it and all that it started are dead when the `with` block ends, for any reason."""
        process: Leader | None = None
        with ExitStack() as open_ends:
            lifeline, held = new_pipe(open_ends)  # the probe's guard sees its end when this process is gone
            progress, report = new_pipe(open_ends)
            try:
                if fork_server is None:
                    process = self._start(request, folder, log, tag, lifeline.fileno(), report.fileno())
                else:
                    inherited = log.fileno(), lifeline.fileno(), report.fileno()
                    environ = self._environment(request)
                    process = open_ends.enter_context(fork_server.fork(folder, tag, inherited, environ))
                lifeline.close()
                report.close()
                on_phase = telemetry.phase if telemetry else lambda name: None
                limit = request.memory_limit_bytes if request.device == "cpu" else None
                whose = family if of_ranks(request) else only_leader
                yield (
                    process,
                    Monitor(process, progress.fileno(), request.budget, folder / RESULT, on_phase, limit, whose),
                )
            finally:
                insist(lambda: kill_all(process, tag))
                held.close()
                take_sockets_away(tag)

    def _start(self, request: Request[Any], folder: Path, log: BinaryIO, tag: str, *ends: int) -> Leader:
        descriptors = ("--lifeline", str(ends[0]), "--progress", str(ends[1]), "--parent", str(os.getpid()))
        try:
            return subprocess.Popen(
                (*self._command, str(folder.absolute()), *descriptors),
                stdin=subprocess.DEVNULL,
                stdout=log,  # a file and not a pipe, which workers that outlive the probe would hold open
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own, to kill it, and without Ctrl-C from this terminal
                pass_fds=ends,
                cwd=self._cwd,
                env=self._environment(request) | {TAG: tag},
            )
        except OSError as error:
            raise EnvironmentUnfit(
                f"The probe process could not be started: {self._command[0]}: {error.strerror or error}. "
                f"The machine is probably out of memory, processes or file descriptors, or Python has moved. "
                f"Free some (`ulimit -u`, `ulimit -n` show the limits), or call autotune by the Python that has it."
            ) from error


def _has_time(request: Request[Any], gone: float, needed: float) -> bool:
    """Return whether a repeat of a probe that takes so many seconds ends in time, if so many seconds are gone."""
    within = request.repeat_within_seconds if isinstance(request, ProbeRequest) else None
    return within is None or gone + needed <= within


def threads_of_a_rank(request: Request[Any]) -> dict[str, str]:
    """Return the variable that gives each rank its share of the cores: ranks that each use all would slow one another.

    There is none for a command, whose launcher sets it: torchrun gives each rank one thread.
    """
    if is_command(request.target or ""):
        return {}
    return {"OMP_NUM_THREADS": str(max(1, usable_cores() // request.ranks))}


def _read(folder: Path, kind: type[ResultT]) -> ResultT | str:
    """Return the result that the probe left, or a sentence on why there is none."""
    try:
        return codec.read(folder / RESULT, kind)
    except FileNotFoundError:
        return ""
    except (StudyError, OSError) as error:
        return f"its {RESULT} cannot be used: {error}"
