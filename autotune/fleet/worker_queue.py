"""The queue as a worker sees it: it joins a study, takes one job at a time, and stores each result once."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from autotune.core import codec
from autotune.core.records import Environment
from autotune.fleet.database import Cursor, Database
from autotune.fleet.records import Job, QueuedStudy
from autotune.fleet.schema import IS_HELD, IS_RUNNING, WORKER_LOCK, make_tables

# Its own job first, should its answer to the last look have been lost on the way; then one for it alone.
TAKE = """
UPDATE autotune_job SET state = 'running', worker = %(worker)s, taken_at = coalesce(taken_at, now()) WHERE id = (
    SELECT id FROM autotune_job WHERE study = %(study)s AND (
        (state = 'running' AND worker = %(worker)s)
        OR (state = 'queued' AND (wanted = %(worker)s OR (wanted IS NULL AND %(takes_any)s))))
    ORDER BY state = 'queued', wanted IS NULL, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, place, request"""
STORE = """
UPDATE autotune_job SET state = 'done', result = %(result)s, log = %(log)s, worker = %(worker)s,
    taken_at = coalesce(taken_at, now()), finished_at = now()
WHERE id = %(id)s AND state IN ('queued', 'running') RETURNING id"""

NAMESAKE = f"""
SELECT w.host FROM autotune_worker w
WHERE w.study = %s AND w.name = %s AND w.token <> %s AND w.left_at IS NULL AND {IS_HELD}"""


class WorkerQueue:
    """The study that one worker has joined, under one connection, which holds its lease."""

    def __init__(self, database: Database, study: str) -> None:
        """Make the tables if there are none: a worker may come before the search."""
        self.database, self.study_name, self.worker = database, study, 0
        try:
            database.run(make_tables)
        except BaseException:  # Ctrl-C, too: nobody else has this connection to close it
            database.close()
            raise

    def study(self) -> QueuedStudy | None:
        """Return the study; None: no search has begun it yet."""
        query = f"""SELECT name, target, target_digest, isolation, environment, ended_at IS NOT NULL, {IS_RUNNING}
            FROM autotune_study s WHERE name = %s"""
        row: Any = self.database.run(lambda cursor: cursor.execute(query, (self.study_name,)).fetchone())
        if row is None:
            return None
        name, target, digest, isolation, environment, has_ended, is_running = row
        known = None if environment is None else codec.decode(environment.encode(), Environment)
        return QueuedStudy(
            name=name, target=target, target_digest=digest, isolation="fresh" if isolation == "fresh" else "fork",
            environment=known, has_ended=has_ended, is_running=is_running,
        )  # fmt: skip

    def others(self) -> list[str]:
        """Return the names of the other studies whose searches have not ended."""
        query = "SELECT name FROM autotune_study WHERE ended_at IS NULL AND name <> %s ORDER BY name"
        return self.database.run(lambda cursor: [row[0] for row in cursor.execute(query, (self.study_name,))])

    def join(self, token: UUID, name: str, host: str, environment: Environment) -> str:
        """Join the study: from now on this connection holds a lease, which the server frees when this process ends.

        Return the host of another worker that is there under the same name, so that this one has not joined; or "".
        """
        values = (token, self.study_name, name, host, codec.encode(environment).decode())

        def join(cursor: Cursor) -> tuple[str, int]:
            # Two that join at the same moment follow one another, and the second sees the lease of the first.
            cursor.execute("SELECT FROM autotune_study WHERE name = %s FOR UPDATE", (self.study_name,))
            other: Any = cursor.execute(NAMESAKE, (self.study_name, name, token)).fetchone()
            if other is not None:
                return str(other[0]), 0
            cursor.execute(
                "INSERT INTO autotune_worker (token, study, name, host, environment) VALUES (%s, %s, %s, %s, %s) "
                "ON CONFLICT (token) DO UPDATE SET left_at = NULL, missing_since = NULL "
                "RETURNING id, pg_try_advisory_lock(%s, id)",
                (*values, WORKER_LOCK),
            )
            row: Any = cursor.fetchone()
            return "", int(row[0])

        found, self.worker = self.database.run(join)
        if self.worker:
            self.database.hold((WORKER_LOCK, self.worker))  # whenever there is a connection
        return found

    def take(self) -> Job | None:
        """Take the next job; None: there is none for this worker."""

        def take(cursor: Cursor) -> Any:
            cursor.execute(
                "UPDATE autotune_worker SET left_at = NULL, missing_since = NULL WHERE id = %s "
                "AND (left_at IS NOT NULL OR missing_since IS NOT NULL)", (self.worker,),
            )  # fmt: skip
            query = "SELECT quarantined = '' FROM autotune_worker WHERE id = %s"
            known = cursor.execute(query, (self.worker,)).fetchone()
            values = {"worker": self.worker, "study": self.study_name, "takes_any": known is not None and known[0]}
            return cursor.execute(TAKE, values).fetchone()

        row = self.database.run(take)
        return None if row is None else Job(id=row[0], place=row[1], request=row[2])

    def is_mine(self, job: Job) -> bool:
        """Return whether this worker is still the one that carries it out: a sign of life."""
        query = "SELECT worker = %s AND state = 'running' FROM autotune_job WHERE id = %s"
        row: Any = self.database.run(lambda cursor: cursor.execute(query, (self.worker, job.id)).fetchone())
        return row is not None and bool(row[0])

    def store(self, job: Job, result: str, log: bytes) -> Literal["stored", "late"]:
        """Store the result, if the job has none and is waited for."""

        def store(cursor: Cursor) -> Literal["stored", "late"]:
            values = {"id": job.id, "worker": self.worker, "result": result, "log": log}
            if cursor.execute(STORE, values).fetchone() is not None:
                return "stored"
            row: Any = cursor.execute(
                "SELECT worker = %s AND result = %s FROM autotune_job WHERE id = %s", (self.worker, result, job.id)
            ).fetchone()
            return "stored" if row is not None and row[0] else "late"  # a lost connection had stored it already

        return self.database.run(store)

    def leave(self) -> None:
        """Give back the job that is not done, and leave the study."""

        def leave(cursor: Cursor) -> None:
            cursor.execute(
                "UPDATE autotune_job SET state = 'queued', worker = NULL, wanted = NULL, taken_at = NULL "
                "WHERE worker = %s AND state = 'running'", (self.worker,),
            )  # fmt: skip
            cursor.execute("UPDATE autotune_worker SET left_at = now() WHERE id = %s", (self.worker,))

        if self.worker:
            self.database.run(leave)
        self.database.close()
