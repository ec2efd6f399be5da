"""The tables and locks of the queue, in plain SQL; the version of the tables is kept beside them."""

from __future__ import annotations

from autotune.errors import StudyError
from autotune.fleet.database import Cursor

TABLES_VERSION = 1
SCHEMA_LOCK, WORKER_LOCK, SEARCH_LOCK = 190_000, 190_001, 190_002  # classes of advisory locks

# Whether an advisory lock is held; everybody may read pg_locks.
_HELD = """EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON l.database = d.oid
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted
    AND l.classid = {} AND l.objid = {} AND l.objsubid = 2)"""
IS_HELD = _HELD.format(WORKER_LOCK, "w.id")  # the lease of worker `w`
IS_RUNNING = _HELD.format(SEARCH_LOCK, "s.id")  # study `s`, by a search

TABLES = """
CREATE TABLE IF NOT EXISTS autotune_schema (version integer PRIMARY KEY);

CREATE TABLE IF NOT EXISTS autotune_study (
    id integer GENERATED ALWAYS AS IDENTITY UNIQUE,
    name text PRIMARY KEY,
    target text NOT NULL,              -- a reference: no code
    target_digest text NOT NULL,
    isolation text NOT NULL,
    environment text,                  -- JSON: the class of machines
    ended_at timestamptz
);

CREATE TABLE IF NOT EXISTS autotune_worker (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token uuid NOT NULL UNIQUE,        -- made by the worker: joining twice is joining once
    study text NOT NULL REFERENCES autotune_study (name) ON DELETE CASCADE,
    name text NOT NULL,
    host text NOT NULL,
    environment text NOT NULL,         -- JSON
    quarantined text NOT NULL DEFAULT '',
    reference double precision,
    missing_since timestamptz,         -- its lease was seen free
    left_at timestamptz,
    joined_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS autotune_job (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token uuid NOT NULL UNIQUE,        -- made by the search: queueing twice is queueing once
    study text NOT NULL REFERENCES autotune_study (name) ON DELETE CASCADE,
    place text NOT NULL,
    request text NOT NULL,             -- JSON
    wanted integer,                    -- the worker that is to carry it out; NULL: any
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done')),
    worker integer REFERENCES autotune_worker (id) ON DELETE SET NULL,
    losses integer NOT NULL DEFAULT 0, -- workers that were lost with it
    evidence text NOT NULL DEFAULT '',
    patience double precision NOT NULL,-- seconds that it may run
    queued_at timestamptz NOT NULL DEFAULT now(),
    taken_at timestamptz,
    finished_at timestamptz,
    result text,                       -- JSON
    log bytea
);
CREATE INDEX IF NOT EXISTS autotune_job_open ON autotune_job (study, state) WHERE state IN ('queued', 'running');
"""


def make_tables(cursor: Cursor) -> None:
    """Make the tables if there are none. Raises `StudyError` for tables of another version."""
    cursor.execute("SELECT pg_advisory_xact_lock(%s, 0)", (SCHEMA_LOCK,))  # two that make them at once would collide
    cursor.execute("SELECT to_regclass('autotune_schema') IS NOT NULL")
    row = cursor.fetchone()
    if row is None or not row[0]:
        cursor.execute(TABLES)
        cursor.execute("INSERT INTO autotune_schema VALUES (%s)", (TABLES_VERSION,))
    cursor.execute("SELECT max(version) FROM autotune_schema")
    row = cursor.fetchone()
    if row is None or row[0] != TABLES_VERSION:
        raise StudyError(
            f"The tables autotune_* of this database have version {row and row[0]}, and this autotune needs "
            f"{TABLES_VERSION}. Another version probably made them. Use one version on all machines, or another "
            f"database."
        )
