"""One connection to PostgreSQL that reconnects: each action is one transaction, repeated until it is committed."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from autotune.errors import EnvironmentUnfit, StudyError, UsageError
from autotune.fleet.address import checked_address, printable_address
from autotune.units import format_seconds

T = TypeVar("T")
Cursor = psycopg.Cursor[Any]
Action = Callable[[Cursor], T]
Key = tuple[int, int]  # of an advisory lock of the session

# What a server answers that no waiting changes. libpq tells no code for it; in another language it is waited for.
FINAL = re.compile(r"FATAL: .*(does not exist|authentication failed|no pg_hba\.conf entry|permission denied)")
FIRST_PATIENCE_SECONDS = 10.0  # with a server that has never answered: the address is probably wrong
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0
TOLD_SECONDS = 5.0  # without an answer, until that is said: a restart takes less
SILENT_MILLISECONDS = 90_000  # without an acknowledgement, until a connection counts as lost
# The server gives a lease back two minutes after its machine vanished; a worker has stopped by then: see `Timing`.
# Keepalives tell it of a silent connection, the other one of an answer that is never acknowledged: else 15 minutes.
OPTIONS = "-c tcp_keepalives_idle=60 -c tcp_keepalives_interval=15 -c tcp_keepalives_count=4 -c tcp_user_timeout=120000"
LOST = (psycopg.OperationalError, psycopg.InterfaceError)


class LeaseTaken(StudyError):
    """Another session holds the lock that this connection is to hold."""


class Database:
    """A connection for one process, which may hold an advisory lock: the server frees it when the connection ends.

    Safe to use from several threads; actions follow one another. An action must be safe to repeat: a connection may be
    lost while its transaction is committed.
    """

    def __init__(
        self, url: str, *, patience_seconds: float, tell: Callable[[str], None] = lambda text: None
    ) -> None:  # fmt: skip
        """Connect when something is done; `patience_seconds`: with a server that has answered before.

        `tell` is given what a person should know who waits meanwhile.
        """
        self._url, self._patience, self._tell = checked_address(url), patience_seconds, tell
        self._lock_key: Key | None = None
        self._mutex = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None
        self._confirmed: float | None = None  # when the server last answered, on this machine's monotonic clock
        self._is_lost = False  # the connection, since then
        self.connections = 0  # made so far

    @property
    def lost_seconds(self) -> float:
        """For how long the server has not answered, if the connection was lost; 0 while there is one."""
        return time.monotonic() - self._confirmed if self._is_lost and self._confirmed is not None else 0.0

    def run(self, action: Action[T]) -> T:
        """Run the action in a transaction; repeat it while the connection is lost.

        Raises `EnvironmentUnfit` when the server cannot be reached for too long.
        """
        with self._mutex:
            began, pause, is_told = time.monotonic(), FIRST_PAUSE_SECONDS, False
            while True:
                try:
                    found = self._once(action)
                    if is_told:
                        self._tell(f"{printable_address(self._url)} answers again.")
                    return found
                except LOST as error:
                    self._is_lost = True
                    self._drop()
                    since = time.monotonic() - (self._confirmed or began)
                    patience = FIRST_PATIENCE_SECONDS if self._confirmed is None else self._patience
                    if since > patience or (self._confirmed is None and FINAL.search(str(error))):
                        raise self._unreachable(error, since) from None
                    if self._confirmed is not None and not is_told and time.monotonic() - began > TOLD_SECONDS:
                        is_told = True
                        text = f"does not answer: waiting for up to {format_seconds(self._patience)}."
                        self._tell(f"{printable_address(self._url)} {text}")
                except psycopg.Error as error:
                    raise self._refused(error) from None
                time.sleep(pause * random.uniform(0.5, 1.5))  # so that a fleet does not come back all at once
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def hold(self, key: Key) -> None:
        """Hold this lock from now on, whenever there is a connection. Raises `LeaseTaken`."""
        with self._mutex:
            self._lock_key = key
            self.run(lambda cursor: self._take_lock(cursor))

    def give_up(self, after_seconds: float = 0.0) -> None:
        """Stop waiting for a server that cannot be reached: the next failure raises, or one `after_seconds`."""
        now = time.monotonic()
        self._patience = now - (self._confirmed or now) + after_seconds

    def close(self) -> None:
        """Close the connection, which frees the lock."""
        with self._mutex:
            self._drop()

    def _once(self, action: Action[T]) -> T:
        if self._connection is None:
            self._connection = self._connected()
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                found = action(cursor)
        except KeyboardInterrupt:  # a transaction is perhaps open, and would swallow the next ones: nobody commits it
            self._drop()
            raise
        self._confirmed, self._is_lost = time.monotonic(), False
        return found

    def _connected(self) -> psycopg.Connection[Any]:
        try:
            connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=10, options=OPTIONS, tcp_user_timeout=SILENT_MILLISECONDS,
                keepalives_idle=30, keepalives_interval=15, keepalives_count=4, application_name="autotune",
            )  # fmt: skip
        except psycopg.ProgrammingError:  # its text repeats what may be a part of a password
            raise UsageError(
                f"The parameters of --storage {printable_address(self._url)} are none of PostgreSQL's. One was "
                f"probably mistyped, or a password in them is not percent-encoded; they are not repeated here. Write "
                f"?sslmode=verify-full, as libpq names them, and the password into ~/.pgpass."
            ) from None
        self.connections += 1
        if self._lock_key is not None:
            try:
                with connection.cursor() as cursor:
                    self._take_lock(cursor)
            except BaseException:  # Ctrl-C, too: nobody would close it, and it may hold the lock
                connection.close()
                raise
        return connection

    def _take_lock(self, cursor: Cursor) -> None:
        """Take the lock, for the connection and not for a transaction.

        A connection that was just lost may still hold it, so that it is tried again as if the server did not answer.
        """
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", self._lock_key)
        row = cursor.fetchone()
        if row is not None and row[0]:
            return
        if self.connections <= 1:
            raise LeaseTaken("somebody else holds it")
        raise psycopg.OperationalError("the lock is still held by a connection that was lost")

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _refused(self, error: psycopg.Error) -> StudyError:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return StudyError(
            f"{printable_address(self._url)} refused what a fleet needs: {why}. Its user probably may not make or "
            f"change tables there, or they were changed by hand. Give another database, or drop the tables autotune_* "
            f"in this one."
        )

    def _unreachable(self, error: Exception, seconds: float) -> EnvironmentUnfit:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        waited = f" for {seconds:.0f} s" if seconds >= 1 else ""
        return EnvironmentUnfit(
            f"{printable_address(self._url)} could not be reached{waited}: {why}. The server is probably down, or the "
            f"address, database, user or password is wrong. Start it, or correct --storage; the same command then goes "
            f"on."
        )
