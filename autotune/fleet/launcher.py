"""The launcher of a search over several machines: it queues each request, and brings back what a worker made of it.

    store request ─► queue ─► wait: its end, or two lost workers ─► log and result into the folder ─► off the queue

The study's folder stays the truth. A job is taken off the queue when its result is there, so that a search that was
killed finds the results of its last probes in the queue when it is resumed.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
from msgspec.structs import replace

from autotune.core import codec, measurements
from autotune.core.records import Config, Environment
from autotune.core.requests import ProbeRequest, Request, ResultT, patient
from autotune.core.results import Failure, Inspection, Outcome
from autotune.errors import EnvironmentUnfit
from autotune.fleet.base import ByHand, Starter
from autotune.fleet.records import FleetWorker, JobEnd, QueuedStudy, Timing
from autotune.fleet.search_queue import Deadly, SearchQueue
from autotune.fleet.state import write_workers
from autotune.fleet.trust import class_differences, class_of
from autotune.launch.base import LOG, REQUEST, RESULT
from autotune.launch.files import open_log, store, unwritable

PLACE = re.compile(r"[a-z_]+/[0-9]+")  # of a request in a study; another is not taken from the database
WORKER_LOOK_SECONDS = 2.0  # between two looks at whether there is a worker at all
LAUNCH_ATTEMPTS = 3  # of a worker's launcher at most: forked, and fresh after that
MARGIN_SECONDS = 60.0  # to start and end these


class FleetLauncher:
    """Runs requests on workers. Safe to use from several threads.

    Requests go to one worker, the home of the search, so that they compare; `on` another where that is asked for.
    """

    def __init__(
        self, url: str, study: QueuedStudy, folder: Path, *, is_fresh: bool = False, expected: int = 1,
        step_timeout_seconds: float | None = None, tell: Callable[[str], None] = lambda text: None,
        timing: Timing | None = None,
    ) -> None:  # fmt: skip
        """`folder`: of the study; `is_fresh`: what an earlier search left in the queue is of no use."""
        self._timing = timing or Timing()
        self.queue = SearchQueue(url, study.name, self._timing, tell)
        if study.environment is not None:
            study = replace(study, environment=class_of(study, study.environment))
        self._study, self._class, self._folder, self._is_fresh = study, study.environment, folder, is_fresh
        self._tell, self._step_timeout_seconds = tell, step_timeout_seconds
        self.expected = expected  # workers, with which the search begins
        self.starter: Starter = ByHand(study.name)  # of the workers; both may be set until the first request
        self._home: int | None = None
        self._shown: list[tuple[int, str, str]] = []  # of the workers, as they were last written down
        self._deadly: dict[tuple[type[Request[Any]], Config], Failure] = {}
        self._is_first, self._beginning = True, threading.Lock()
        self.queue.open(study)

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        """Run the request on the home of the search; see `Launcher`."""
        return self._run(request, folder, None)

    def on(self, worker: int) -> OneWorker:
        """Return a launcher that runs requests on that worker; on another if it is lost."""
        return OneWorker(self, worker)

    def workers(self) -> tuple[FleetWorker, ...]:
        """Return the workers that are there and of the study's class, in the order in which they came."""
        there, known = self.queue.workers(), self._class
        fit = tuple(one for one in there if known is None or not class_differences(known, one.environment))
        if [(one.id, one.job, one.quarantined) for one in fit] != self._shown:
            self._shown = [(one.id, one.job, one.quarantined) for one in fit]
            write_workers(self._folder, fit)
        return fit

    def stop(self) -> None:
        """End the waiting of other threads: their requests raise, and their workers stop."""
        self.queue.is_stopped = True
        self.queue.database.give_up()

    def mark(self, worker: int, *, reference: float | None, quarantined: str) -> None:
        """Store the score of the baseline on a worker; see `Fleet.mark`."""
        self.queue.mark(worker, reference=reference, quarantined=quarantined)

    def close(self, *, has_ended: bool) -> None:
        """Delete open jobs; workers leave if the search `has_ended`, and else wait until it is resumed."""
        self.queue.end(for_good=has_ended)

    def _run(self, request: Request[ResultT], folder: Path, wanted: int | None) -> ResultT:
        with self._beginning:
            if self._is_first:  # the study is locked, and not read yet
                self._is_first = False
                self._take_up()
                self._gather()
        if self._step_timeout_seconds is not None:
            request = replace(request, budget=patient(request.budget, self._step_timeout_seconds))
        store(folder, REQUEST, request)
        open_log(folder).close()
        key = (type(request), request.process_config())
        if key in self._deadly:
            result = request.failed(Outcome.CRASHED, self._deadly[key])
            store(folder, RESULT, result)
            return result
        token = uuid4()
        try:
            self.queue.put(
                token, self._job_folder(folder), codec.encode(request).decode(),
                wanted=self._at_home() if wanted is None else wanted,
                patience=LAUNCH_ATTEMPTS * request.budget.total_deadline_seconds + MARGIN_SECONDS,
            )  # fmt: skip
            return self._bring(token, request, folder)
        except BaseException:  # an interrupt, too: as every launcher does, leave neither request nor result
            (folder / REQUEST).unlink(missing_ok=True)
            (folder / RESULT).unlink(missing_ok=True)
            self.queue.database.give_up()  # whoever interrupts does not wait for a server that is down
            with suppress(EnvironmentUnfit):
                self.queue.forget(token)
            raise

    def _bring(self, token: UUID, request: Request[ResultT], folder: Path) -> ResultT:
        """Wait for the end of the job, put its result into the folder, and take it off the queue."""
        try:
            end = self._await(token)
        except Deadly as evidence:
            failure = Failure(
                phase="start", message="Two workers were lost while they ran it; no third is risked.",
                evidence=str(evidence),
            )  # fmt: skip
            self._deadly[type(request), request.process_config()] = failure
            result = request.failed(Outcome.CRASHED, failure)
        else:
            result = _decoded(end, request)
            try:
                (folder / LOG).write_bytes(end.log)
            except OSError as error:
                raise unwritable(folder, error) from error
        store(folder, RESULT, result)
        self.queue.forget(token)
        if isinstance(result, Inspection) and result.environment is not None:
            self._settle_class(result.environment)
        return result

    def _await(self, token: UUID) -> JobEnd:
        alone_since, is_told, looked = time.monotonic(), False, time.monotonic()
        while (end := self.queue.wait(token)) is None:
            if time.monotonic() - looked < WORKER_LOOK_SECONDS:
                continue
            looked = time.monotonic()
            if self.workers():
                alone_since, is_told = looked, False
                continue
            self.starter.check()
            if looked - alone_since > self._timing.patience:
                raise self._alone()
            if not is_told and looked - alone_since > WORKER_LOOK_SECONDS:
                self._tell(f"No worker is there: {self.starter.how}.")
                is_told = True
        return end

    def _gather(self) -> None:
        """Wait for the workers that are expected: for the first one with patience, for the others a while."""
        began, told = time.monotonic(), -1
        while len(workers := self.workers()) < self.expected:
            waited = time.monotonic() - began
            if not workers:
                self.starter.check()
            if workers and waited > self._timing.gathering:
                self._tell(f"{len(workers)} of {self.expected} workers are there after {waited:.0f} s: going on.")
                return
            if waited > self._timing.patience:
                raise self._alone()
            if told != len(workers):
                self._tell(f"Waiting for workers ({len(workers)} of {self.expected}): {self.starter.how}.")
                told = len(workers)
            time.sleep(self._timing.poll)

    def _take_up(self) -> None:
        """Take up what a search that was killed left in the queue: wait for what runs, and keep what is done."""
        for token, place, text, state in self.queue.left_over():
            folder = self._folder / place
            request = None if self._is_fresh or not PLACE.fullmatch(place) else _asked(folder, text)
            if request is None:
                self.queue.forget(token)
            elif state == "queued":  # it never ran: as if it had been interrupted
                (folder / REQUEST).unlink()
                self.queue.forget(token)
            else:
                self._tell(f"{place} was under way when the search ended: its result is used.")
                self._bring(token, request, folder)

    def _at_home(self) -> int | None:
        """Return the home of the search, another one if it is lost; None: any worker."""
        fit = [one.id for one in self.workers() if not one.quarantined]
        if self._home is not None and self._home not in fit and fit:
            self._tell("The worker where the search was at home is gone: another one goes on.")
        if self._home not in fit:
            self._home = fit[0] if fit else None
        return self._home

    def _settle_class(self, environment: Environment) -> None:
        if self._class is None:
            self._class = class_of(self._study, environment)
            self.queue.set_class(self._class)

    def _job_folder(self, folder: Path) -> str:
        inside = folder.absolute().is_relative_to(self._folder.absolute())
        return folder.absolute().relative_to(self._folder.absolute()).as_posix() if inside else folder.name

    def _alone(self) -> EnvironmentUnfit:
        return EnvironmentUnfit(
            f"No worker was there for {self._timing.patience:.0f} s. None was probably started, or all were refused: "
            f"they say why. {self.starter.remedy}, and run the same command again."
        )


@dataclass(frozen=True)
class OneWorker:
    """A launcher for one worker of a fleet."""

    fleet: FleetLauncher
    worker: int

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        """Run the request on that worker; see `Launcher`."""
        return self.fleet._run(request, folder, self.worker)


def _decoded(end: JobEnd, request: Request[ResultT]) -> ResultT:
    """Return the result that a worker sent, with its name and the database's clock; a failure if it is none."""
    try:
        result: ResultT = codec.decode(end.result.encode(), request.kind().result)
    except (msgspec.MsgspecError, ValueError) as error:
        failure = Failure(
            phase="start", message=f"Worker {end.worker} sent what is no result: {error}",
            evidence="its answer in the queue",
        )  # fmt: skip
        return request.failed(Outcome.CRASHED, failure)
    result = replace(result, started_at=end.taken_at if result.started_at else "")
    return replace(result, worker=end.worker) if isinstance(request, ProbeRequest) else result


def _asked(folder: Path, text: str) -> Request[Any] | None:
    """Return the request that waits for its result in `folder`, if it is this one."""
    try:
        waiting = (folder / REQUEST).read_bytes()
        return measurements.decode(waiting) if waiting == text.encode() and not (folder / RESULT).exists() else None
    except (OSError, msgspec.MsgspecError, ValueError):
        return None
