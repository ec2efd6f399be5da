"""The one JSON form of all records, and their atomic place on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from autotune.errors import StudyError
from autotune.records import PROTOCOL, Record

R = TypeVar("R", bound=Record)


def encode(record: Record) -> bytes:
    """One record as indented UTF-8 JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode(data: bytes, kind: Any) -> Any:
    """The record in `data`; raises `msgspec.DecodeError` (malformed) or `msgspec.ValidationError` (wrong content)."""
    return msgspec.json.decode(data, type=kind)


def read(path: Path, kind: type[R]) -> R:
    """The record stored in `path`.

    Raises `StudyError` if the file is damaged or of another protocol, and `OSError` if it cannot be read.
    """
    try:
        record: R = decode(path.read_bytes(), kind)
    except msgspec.DecodeError as error:
        raise StudyError(
            f"{path} is not a readable {kind.__name__}: {error}. It was probably cut short, edited, or written by "
            f"another version of autotune. Move it away to go on without it."
        ) from error
    protocol = getattr(record, "protocol", PROTOCOL)
    if protocol != PROTOCOL:
        raise StudyError(
            f"{path} speaks protocol {protocol}, this autotune speaks {PROTOCOL}. Another version wrote it. "
            f"Read it with that version, or search again."
        )
    return record


def write(path: Path, record: Record) -> None:
    """Store a record so that a reader sees the old file or the whole new one, never a part of it."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(encode(record))
    partial.replace(path)
