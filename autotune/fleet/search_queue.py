"""The queue as the search sees it: it puts jobs in, waits for their ends, and finds out which workers are lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.records import Environment
from autotune.errors import StudyError
from autotune.fleet.database import Cursor, Database, LeaseTaken
from autotune.fleet.records import FleetWorker, JobEnd, QueuedStudy, Timing
from autotune.fleet.schema import IS_HELD, SEARCH_LOCK, WORKER_LOCK, make_tables

T = TypeVar("T")
MOST_LOST_WORKERS = 2  # workers that are lost with one job: no third is risked
STALE_SECONDS = 30.0  # that a worker leaves a job of its own in the queue: it is stopped, and another may take it

LOOK_AT_LEASES = f"""
SELECT w.id, w.name, {IS_HELD}, w.missing_since IS NOT NULL,
    extract(epoch FROM now() - greatest(w.missing_since, pg_postmaster_start_time())),
    extract(epoch FROM now() - pg_postmaster_start_time())
FROM autotune_worker w WHERE w.study = %s AND w.left_at IS NULL"""
GIVE_BACK = f"""
UPDATE autotune_job o SET losses = losses + 1, worker = NULL, wanted = NULL, taken_at = NULL,
    state = CASE WHEN losses + 1 >= {MOST_LOST_WORKERS} THEN 'done' ELSE 'queued' END,
    evidence = evidence || CASE evidence WHEN '' THEN '' ELSE '; ' END ||
        format('worker %%s %%s, %%s s after it began', w.name, %s::text,
            round(extract(epoch FROM now() - o.taken_at)::numeric, 1))
FROM autotune_worker w WHERE w.id = o.worker AND o.state = 'running' AND {{}} RETURNING w.name, o.place, o.state"""
ENDED = """
SELECT o.token, o.result, o.log, w.name, to_char(o.taken_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"'),
    o.evidence
FROM autotune_job o LEFT JOIN autotune_worker w ON w.id = o.worker WHERE o.state = 'done' AND o.token = ANY(%s)"""
WORKERS = """
SELECT w.id, w.name, w.host, w.environment, w.quarantined, w.reference, coalesce(o.place, ''),
    coalesce(extract(epoch FROM now() - o.taken_at), 0)
FROM autotune_worker w LEFT JOIN autotune_job o ON o.worker = w.id AND o.state = 'running'
WHERE w.study = %s AND w.left_at IS NULL ORDER BY w.id"""


class Stopped(Exception):
    """The search ends, and waits for no job any more."""


class Deadly(Exception):
    """`MOST_LOST_WORKERS` workers were lost with a job, so that no other gets it; the text says which and when."""


class SearchQueue:
    """The jobs of one search. Safe to use from several threads: one of those that wait polls for all."""

    def __init__(
        self, url: str, name: str, timing: Timing, tell: Callable[[str], None] = lambda text: None
    ) -> None:  # fmt: skip
        """Connect, and make the tables if there are none."""
        self.name, self.timing, self._tell = name, timing, tell
        self.database = Database(url, patience_seconds=timing.patience, tell=tell)
        self.is_stopped = False
        self._mutex = threading.Lock()
        self._waiting: set[UUID] = set()
        self._ended: dict[UUID, JobEnd | Deadly] = {}
        self._looked = float("-inf")
        self._there: dict[int, str] = {}  # names of the workers, when last looked at
        self._most = 0  # workers that were there at once

    def open(self, study: QueuedStudy) -> None:
        """Hold the study for this search, and say what is trained. Raises `StudyError` if another search holds it."""
        try:
            self._open(study)
        except BaseException:  # Ctrl-C, too: the study would stay locked by this connection
            self.database.close()
            raise

    def _open(self, study: QueuedStudy) -> None:
        self.database.run(make_tables)
        number = self.database.run(self._row)
        try:
            self.database.hold((SEARCH_LOCK, number))
        except LeaseTaken:
            raise StudyError(
                f"Another search goes on under the name {self.name} on this database. Two searches cannot share "
                f"workers. Wait for it, or choose another folder with --study: its name is that of the study."
            ) from None
        environment = None if study.environment is None else codec.encode(study.environment).decode()
        values = (study.target, study.target_digest, study.isolation, environment, self.name)
        self.database.run(
            lambda cursor: cursor.execute(
                "UPDATE autotune_study SET target = %s, target_digest = %s, isolation = %s, environment = %s, "
                "ended_at = NULL WHERE name = %s",
                values,
            )
        )

    def _row(self, cursor: Cursor) -> int:
        cursor.execute(
            "INSERT INTO autotune_study (name, target, target_digest, isolation, ended_at) "
            "VALUES (%s, '', '', 'fork', now()) ON CONFLICT (name) DO NOTHING", (self.name,),
        )  # fmt: skip
        cursor.execute("SELECT id FROM autotune_study WHERE name = %s", (self.name,))
        return int(_first(cursor)[0])

    def end(self, *, for_good: bool) -> None:
        """Withdraw what is not done, and let workers leave if the search is over `for_good`."""

        def end(cursor: Cursor) -> None:
            cursor.execute("DELETE FROM autotune_job WHERE study = %s", (self.name,))
            if for_good:
                cursor.execute("UPDATE autotune_study SET ended_at = now() WHERE name = %s", (self.name,))

        self.database.run(end)
        self.database.close()

    def set_class(self, environment: Environment) -> None:
        """Say on which class of machines the study is measured."""
        text = codec.encode(environment).decode()
        self.database.run(
            lambda cursor: cursor.execute(
                "UPDATE autotune_study SET environment = %s WHERE name = %s", (text, self.name)
            )
        )

    def put(self, token: UUID, place: str, request: str, *, wanted: int | None, patience: float) -> None:
        """Queue one job, for the worker that is `wanted` or for any."""
        values = (token, self.name, place, request, wanted, patience)
        self.database.run(
            lambda cursor: cursor.execute(
                "INSERT INTO autotune_job (token, study, place, request, wanted, patience) "
                "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (token) DO NOTHING",
                values,
            )
        )

    def wait(self, token: UUID) -> JobEnd | None:
        """Return the end of a job; None if there is none after one poll.

        Raises `Deadly`, and `Stopped` once `is_stopped` is set.
        """
        with self._mutex:
            self._waiting.add(token)
            if time.monotonic() - self._looked >= self.timing.poll:
                self._reaped(self._look)
                self._looked = time.monotonic()
            found = self._ended.pop(token, None)
            if found is not None:
                self._waiting.discard(token)
        if isinstance(found, Deadly):
            raise found
        if self.is_stopped:
            raise Stopped
        if found is None:
            time.sleep(self.timing.poll)
        return found

    def forget(self, token: UUID) -> None:
        """Delete a job: its result is in the study, or nobody waits for it. Its worker notices, and stops."""
        with self._mutex:
            self._waiting.discard(token)
        self.database.run(lambda cursor: cursor.execute("DELETE FROM autotune_job WHERE token = %s", (token,)))

    def left_over(self) -> list[tuple[UUID, str, str, str]]:
        """Return token, place, request and state of the jobs of a search that was killed."""
        query = "SELECT token, place, request, state FROM autotune_job WHERE study = %s ORDER BY id"
        return self.database.run(lambda cursor: list(cursor.execute(query, (self.name,)).fetchall()))

    def workers(self) -> tuple[FleetWorker, ...]:
        """Return the workers that are there, in the order in which they came."""
        with self._mutex:
            rows = self._reaped(lambda cursor: cursor.execute(WORKERS, (self.name,)).fetchall())
            return decoded_workers([row for row in rows if row[0] in self._there])

    def mark(self, worker: int, *, reference: float | None, quarantined: str) -> None:
        """Store the score of the baseline on a worker; see `Fleet.mark`."""
        values = (reference, quarantined, worker)
        self.database.run(
            lambda cursor: cursor.execute(
                "UPDATE autotune_worker SET reference = %s, quarantined = %s WHERE id = %s", values
            )
        )

    def _reaped(self, read: Callable[[Cursor], T]) -> T:
        """Read, then give the jobs of lost workers back and say who is gone; return what `read` did: one transaction.

        In this order, for workers come and go meanwhile: whoever was read is there, or it was said that they are gone.
        """
        found, (said, there) = self.database.run(lambda cursor: (read(cursor), self._reap(cursor)))
        self._there, self._most = there, max(self._most, len(there))
        for text in said:
            self._tell(text)
        return found

    def _look(self, cursor: Cursor) -> None:
        for token, result, log, worker, taken_at, evidence in cursor.execute(ENDED, ([*self._waiting],)).fetchall():
            if result is None:
                self._ended[token] = Deadly(evidence)
            else:
                self._ended[token] = JobEnd(result=result, log=bytes(log), worker=worker or "", taken_at=taken_at)

    def _reap(self, cursor: Cursor) -> tuple[list[str], dict[int, str]]:
        """Give the jobs of lost workers back: those whose lease was free long enough, and is free now.

        Return a sentence for each worker that was lost or has left, and the names of those that are there.
        """
        leases = cursor.execute(LOOK_AT_LEASES, (self.name,)).fetchall()
        there = {worker: name for worker, name, *_ in leases}
        left = [name for worker, name in self._there.items() if worker not in there]
        said = [f"Worker {name} has left: {len(there)} of {self._most} workers are there." for name in left]
        for worker, name, is_held, was_missing, missing, uptime in leases:
            if is_held or not was_missing:
                since = "NULL" if is_held else "now()"
                if is_held == was_missing:
                    cursor.execute(f"UPDATE autotune_worker SET missing_since = {since} WHERE id = %s", (worker,))
            elif missing > self.timing.grace and uptime > self.timing.restarted:
                cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", (WORKER_LOCK, worker))
                if _first(cursor)[0]:  # held until this transaction ends: it cannot come back in between
                    jobs = cursor.execute(GIVE_BACK.format("w.id = %s"), ("was lost", worker)).fetchall()
                    said += _given_back(jobs, "was lost") or [f"Worker {name} was lost while it was idle."]
                    cursor.execute("UPDATE autotune_worker SET left_at = now() WHERE id = %s", (worker,))
                    del there[worker]
        late = "o.study = %s AND now() > o.taken_at + make_interval(secs => o.patience)"
        jobs = cursor.execute(GIVE_BACK.format(late), ("did not answer in time", self.name)).fetchall()
        said += _given_back(jobs, "did not answer in time")
        cursor.execute(
            "UPDATE autotune_job o SET wanted = NULL WHERE study = %s AND state = 'queued' AND wanted IS NOT NULL "
            "AND (now() > queued_at + make_interval(secs => %s) OR NOT EXISTS "
            "(SELECT FROM autotune_worker w WHERE w.id = o.wanted AND w.left_at IS NULL))",
            (self.name, STALE_SECONDS),
        )
        return said, there


def _given_back(jobs: Sequence[Any], why: str) -> list[str]:
    """Return a sentence for each row that `GIVE_BACK` returned."""
    then = {"queued": "goes to another worker", "done": "has cost two workers and counts as crashed"}
    return [f"Worker {name} {why}: {place} {then[state]}." for name, place, state in jobs]


def decoded_workers(rows: Sequence[Any]) -> tuple[FleetWorker, ...]:
    """Return the workers in the rows of `WORKERS`; rows that cannot be decoded are left out."""
    found = []
    for number, name, host, environment, quarantined, reference, job, seconds in rows:
        with suppress(msgspec.MsgspecError, ValueError):
            known = codec.decode(environment.encode(), Environment)
            worker = FleetWorker(id=number, name=name, host=host, environment=known, quarantined=quarantined)
            found.append(replace(worker, reference=reference, job=job, seconds=float(seconds)))
    return tuple(found)


def _first(cursor: Cursor) -> Any:
    row = cursor.fetchone()
    assert row is not None, "the statement returns a row"
    return row
