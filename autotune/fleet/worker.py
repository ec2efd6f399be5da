"""A worker: takes jobs of one study from the queue, carries each out by an ordinary launcher, and stores the results.

    wait for the study ─► same target, same class ─► join ─► (take ─► run ─► store)* ─► the search has ended

While a job runs, other threads stop it if it was given to somebody else, or if the worker has been without its lease
for too long.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from autotune.core import codec
from autotune.core.records import Environment
from autotune.core.requests import InspectRequest, Request
from autotune.core.results import Isolation
from autotune.errors import AutotuneError, EnvironmentUnfit, StudyError
from autotune.fleet.database import TOLD_SECONDS, Database
from autotune.fleet.records import Job, QueuedStudy, Timing
from autotune.fleet.scratch import scratch_folder
from autotune.fleet.trust import accepted, check_class, own_target
from autotune.fleet.worker_queue import WorkerQueue
from autotune.launch.base import LOG, Launcher
from autotune.launch.subprocess import SubprocessLauncher
from autotune.sentences import first_few
from autotune.units import format_seconds

MOST_OTHERS = 5  # studies that are named beside the one that is waited for
STUDY_SECONDS = 2.0  # between two looks at whether the search has ended, or begun
RECONNECT_SECONDS = 8.0  # to leave after an interrupt, which may have broken the connection: a full machine is slow
MakeLauncher = Callable[[Isolation], AbstractContextManager[Launcher]]


class Withdrawn(KeyboardInterrupt):
    """Stops the job that runs: launchers treat it as Ctrl-C, and leave no process behind."""


class Worker:
    """One worker of one study, in the main thread of its process."""

    def __init__(
        self, url: str, study: str, *, name: str, target: str | None = None, device: str | None = None,
        tell: Callable[[str], None] = lambda text: None,
        make_launcher: MakeLauncher = lambda isolation: SubprocessLauncher(isolation=isolation),
        timing: Timing | None = None,
    ) -> None:  # fmt: skip
        """`target`: None, the study's own file in the working folder; `tell` is given what a person should know."""
        self._name, self._target, self._device, self._tell = name, target, device, tell
        self._make_launcher, self._timing = make_launcher, timing or Timing()
        database = Database(url, patience_seconds=self._timing.patience, tell=tell)
        self._queue = WorkerQueue(database, study)
        self._running, self._why_stopped = False, ""
        self._alone_since: float | None = None  # when nobody was first seen to run the search
        self._is_alone_told = False

    def serve(self) -> int:
        """Carry jobs out until the search has ended; return how many.

        Raises `StudyError` if this worker does not fit the study, and `EnvironmentUnfit`, also if the search does
        not begin in time, or was interrupted or killed and does not go on in time. A killed process loses no job: the
        server frees its lease.
        """
        signal.signal(signal.SIGUSR1, self._stop)
        try:
            with ExitStack() as open_ends:
                study = self._study()
                target = own_target(study, self._target)
                launcher = open_ends.enter_context(self._make_launcher(study.isolation))
                scratch = open_ends.enter_context(scratch_folder())
                here = self._look_around(launcher, scratch)
                check_class(study, here)
                self._join(here)
                return self._work(study, target, here, launcher, scratch)
        except BaseException:
            # Whoever interrupts does not wait for a server that is down.
            self._queue.database.give_up(RECONNECT_SECONDS)
            raise
        finally:
            with suppress(EnvironmentUnfit):  # the server frees the lease
                self._queue.leave()

    def _study(self) -> QueuedStudy:
        """Wait until a search goes on with the study. Raises `EnvironmentUnfit` if none begins for `unbegun`."""
        study, since = self._queue.study(), None
        while study is None or study.has_ended or not self._goes_on(study):
            if study is None or study.has_ended:
                if since is None:
                    since = time.monotonic()
                    self._tell(self._waits(study))
                elif time.monotonic() - since > self._timing.unbegun:
                    raise self._unbegun()
            time.sleep(STUDY_SECONDS)
            study = self._queue.study()
        return study

    def _waits(self, study: QueuedStudy | None) -> str:
        seconds = self._timing.unbegun
        end = datetime.now(UTC) + timedelta(seconds=seconds)
        return (
            f"The search of {self._queue.study_name} has {'not begun' if study is None else 'ended'}: start one with "
            f"`{self._command()}`. This worker waits for it until {end:%H:%M} UTC ({format_seconds(seconds)})."
            f"{self._others()}"
        )

    def _unbegun(self) -> EnvironmentUnfit:
        return EnvironmentUnfit(
            f"No search of {self._queue.study_name} began within {format_seconds(self._timing.unbegun)}. Probably none "
            f"was started, or its study has another name, or it uses another database. Start it with "
            f"`{self._command()}`, and start this worker again.{self._others()}"
        )

    def _command(self) -> str:
        return f"autotune search ... --storage ... --study studies/{self._queue.study_name}"

    def _others(self) -> str:
        others = self._queue.others()  # the name may be mistyped, and nobody would come
        return f" Other searches in this database: {first_few(others, MOST_OTHERS)}." if others else ""

    def _goes_on(self, study: QueuedStudy) -> bool:
        """Return whether a search runs; say so if none does, and when it goes on.

        Raises `EnvironmentUnfit` if none has run for `patience`.
        """
        if study.is_running:
            if self._is_alone_told:
                self._tell(f"The search of {study.name} goes on.")
            self._alone_since, self._is_alone_told = None, False
            return True
        if self._alone_since is None:
            self._alone_since = time.monotonic()
        alone = time.monotonic() - self._alone_since
        if alone > self._timing.patience:
            raise EnvironmentUnfit(
                f"The search of {study.name} has not been running for {alone:.0f} s. It was probably interrupted or "
                f"killed, and nobody has started it again. Run the search's command again, and start this worker again."
            )
        if alone > TOLD_SECONDS and not self._is_alone_told:  # a search comes back to a restarted server sooner
            self._tell(f"The search of {study.name} is not running: waiting for it to go on.")
            self._is_alone_told = True
        return False

    def _look_around(self, launcher: Launcher, scratch: Path) -> Environment:
        (folder := scratch / "inspect").mkdir()
        found = launcher.run(InspectRequest(device=self._device), folder)
        if found.environment is None:
            why = found.failure.message.rstrip(".") if found.failure else "it did not say why"
            raise EnvironmentUnfit(
                f"This machine could not be inspected: {why}. `autotune doctor` says more. Repair it, and start the "
                f"worker again."
            )
        return found.environment

    def _join(self, here: Environment) -> None:
        if host := self._queue.join(uuid4(), self._name, os.uname().nodename, here):
            raise StudyError(
                f"A worker called {self._name} is there already, on {host}. Two workers of one device would disturb "
                f"each other's probes. Stop one of them, or give this one another --name if its device is another."
            )
        self._tell(f"{self._name} has joined {self._queue.study_name}: {here.device_name}, {here.usable_cores} cores.")

    def _work(self, study: QueuedStudy, target: str, here: Environment, launcher: Launcher, scratch: Path) -> int:
        count, looked = 0, time.monotonic()
        while True:
            job = self._queue.take()
            if job is None:
                time.sleep(self._timing.poll)
            if job is not None or time.monotonic() - looked > STUDY_SECONDS:
                latest, looked = self._queue.study(), time.monotonic()
                if latest is None or latest.has_ended:
                    self._tell(f"The search of {study.name} has ended.")
                    return count
                goes_on, is_another = self._goes_on(latest), latest.target_digest != study.target_digest
                if job is not None or (goes_on and is_another):  # a search began anew, or a file here was changed
                    target = own_target(latest, self._target)
                    study = latest
                if goes_on:
                    check_class(latest, here)
            if job is not None:
                request = self._accept(job, study, target, here)
                count += self._carry_out(job, request, launcher, scratch / request.FOLDER / f"{job.id:06d}")

    def _accept(self, job: Job, study: QueuedStudy, target: str, here: Environment) -> Request[Any]:
        return accepted(job.request, study, target, here)

    def _carry_out(self, job: Job, request: Request[Any], launcher: Launcher, folder: Path) -> bool:
        """Run one job, and store its result; return whether it was stored."""
        folder.mkdir(parents=True)
        done = threading.Event()
        self._why_stopped, self._running = "", True
        try:  # a watch may stop the job before the next one has begun
            for watch, known in ((self._watch_job, (job, done)), (self._watch_lease, (done,))):
                threading.Thread(target=watch, args=known, daemon=True).start()
            result = launcher.run(request, folder)
            self._running = False
        except Withdrawn:
            shutil.rmtree(folder, ignore_errors=True)  # the same job may come once more
            self._tell(f"{job.place} was stopped: {self._why_stopped}.")
            return False
        finally:
            self._running = False
            done.set()
        told = self._queue.store(job, codec.encode(result).decode(), (folder / LOG).read_bytes())
        shutil.rmtree(folder, ignore_errors=True)
        self._tell(f"{job.place}: {result.outcome}{' (late, not used)' * (told == 'late')}")
        return told == "stored"

    def _watch_job(self, job: Job, done: threading.Event) -> None:
        """Look every beat whether the job is still ours, and stop it if it is not."""
        while not done.wait(self._timing.beat):
            try:
                is_mine = self._queue.is_mine(job)
            except AutotuneError:  # the main thread meets it, too, and says so
                return
            if not is_mine:
                self._ask_to_stop("nobody waits for it here any more", done)
                return

    def _watch_lease(self, done: threading.Event) -> None:
        """Stop what runs once the lease has been gone for so long that the job may soon be given to another.

        By a clock of its own: the other watch may be waiting for an answer.
        """
        while not done.wait(self._timing.poll):
            if self._queue.database.lost_seconds > self._timing.fence:
                self._ask_to_stop("the database has not answered for so long that another worker may begin it", done)
                return

    def _ask_to_stop(self, why: str, done: threading.Event) -> None:
        """Stop the job that runs, unless that of this watch is done: the answer may have come after the next began."""
        if self._running and not done.is_set() and not self._why_stopped:
            self._why_stopped = why
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def _stop(self, *_: object) -> None:
        if self._running:
            self._running = False
            raise Withdrawn
