"""The address of the database: how it is checked, and printed without its password. Imports no driver."""

from __future__ import annotations

import re
from importlib.util import find_spec
from urllib.parse import urlsplit

from autotune.errors import UsageError

_NOT_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")  # the driver's error would repeat what follows


def printable_address(url: str) -> str:
    """Return the address without password and parameters, which may hold a password too."""
    try:
        parts = urlsplit(url)
        user = f"{parts.username}@" if parts.username else ""
        port = f":{parts.port}" if parts.port else ""
        # A password with / ? or # would end before them, and one with @ would go on in the name of the host.
        if "@" in parts.path + parts.query + parts.fragment or parts.netloc.count("@") > 1:
            raise ValueError
    except ValueError:
        return "postgresql://..."
    return f"postgresql://{user}{parts.hostname or ''}{port}{parts.path}"


def checked_address(url: str) -> str:
    """Return the address as psycopg takes it.

    Raises `UsageError`, which never repeats what may hold a password.
    """
    if url.startswith("sqlite"):
        raise UsageError(
            "--storage is the address of an SQLite database. A search on one machine needs no --storage: the study's "
            "folder is its store. Leave --storage out; to measure on several machines, give the address of a "
            "PostgreSQL database, postgresql://USER@HOST:PORT/DATABASE."
        )
    plain = re.sub(r"^postgres(ql)?(\+psycopg)?://", "postgresql://", url)
    is_hidden = printable_address(plain) == "postgresql://..."
    if not plain.startswith("postgresql://") or is_hidden or _NOT_ENCODED.search(plain):
        raise UsageError(
            "--storage is no address of a PostgreSQL database. It was probably mistyped, or a password with / ? # @ or "
            "% is not percent-encoded; it is not repeated here, for it may hold a password. Write "
            "postgresql://USER@HOST:PORT/DATABASE, and the password into ~/.pgpass."
        )
    if find_spec("psycopg") is None:
        raise UsageError(
            "--storage needs the package psycopg, which is not installed. It is an extra of autotune. Run "
            "`pip install -e '.[postgres]'` in autotune's clone on every machine."
        )
    return plain
