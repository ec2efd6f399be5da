"""The one JSON form of all records, and their atomic place on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from autotune.core.records import PROTOCOL_VERSION, Record
from autotune.errors import StudyError
from autotune.harmless import json_text

PARTIAL = ".partial"  # suffix of a file while it is written
R = TypeVar("R", bound=Record)


def encode(record: object) -> bytes:
    """Return a record, or any structure of records, as indented UTF-8 JSON with a final newline; all printable."""
    document = msgspec.json.format(msgspec.json.encode(record), indent=1).decode()
    return f"{json_text(document)}\n".encode()


def decode(data: bytes, kind: Any) -> Any:
    """Return the record in `data`.

    Raises `msgspec.DecodeError` (malformed), `msgspec.ValidationError` (wrong content), or `UnicodeDecodeError`.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        content = msgspec.json.decode(data)
        known = _upgraded(content, kind)
        if known == content:
            raise
        return msgspec.json.decode(msgspec.json.encode(known), type=kind)


def read(
    path: Path, kind: type[R], completed: Callable[[R], R] = lambda record: record,
    remedy: str = "Move it away to go on without it.",
) -> R:  # fmt: skip
    """Return the record stored in `path`; `completed` adds values that earlier versions did not store.

    `remedy` is what the error for a damaged file tells the user to do.

    Raises `StudyError` if the file is damaged or of another protocol, and `OSError` if it cannot be read.
    """
    try:
        record = completed(decode(path.read_bytes(), kind))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StudyError(
            f"{path} is not a readable {kind.__name__}: {error}. It was probably cut short, edited, or written by "
            f"another program or version of autotune. {remedy}"
        ) from error
    protocol = getattr(record, "protocol", PROTOCOL_VERSION)
    if protocol != PROTOCOL_VERSION:
        raise StudyError(
            f"{path} speaks protocol {protocol}, this autotune speaks {PROTOCOL_VERSION}. Another version wrote it. "
            f"Read it with that version, or search again."
        )
    return record


def _upgraded(content: Any, kind: Any) -> Any:
    """Return `content` of this kind, written by any earlier version, as this version would have written it.

    Records inside it are upgraded, too, alone and in tuples, but not in dicts.
    """
    among = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if isinstance(content, list):
        part = next((get_args(one)[0] for one in among if get_origin(one) is tuple), None)
        return [_upgraded(value, part) for value in content]
    kinds = [one for one in among if isinstance(one, type) and issubclass(one, Record)]
    for one in kinds:
        content = one.upgraded(content)
    if not isinstance(content, dict) or not kinds:
        return content
    parts = {field.encode_name: field.type for one in kinds for field in msgspec.structs.fields(one)}
    return {name: _upgraded(value, parts.get(name)) for name, value in content.items()}


def write(path: Path, record: Record) -> None:
    """Store a record so that a reader sees the old file or the whole new one, never a part of it.

    Into a device, a pipe or a link it is written as it is: a file in the place of `/dev/null` would break the machine.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_bytes(encode(record))
        return
    partial = path.with_name(path.name + PARTIAL)
    partial.write_bytes(encode(record))
    partial.replace(path)
