"""The files that samples open: noted, and dropped from the page cache before; caches of fsspec in a fresh folder.

Python tells of each file that it opens (PEP 578). Not seen: files that C code opens, and those that stay open.
"""

from __future__ import annotations

import functools
import inspect
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.machine.host import disk_bytes_read
from autotune.profile.measuring.stopwatch import replaced

_NO_DATA = (".py", ".pyc", ".so")  # modules that are imported late
_NO_FILES = ("/proc/", "/sys/", "/dev/", "/etc/")
_dropped = set[str]()  # by this process, each file once: what lies in one file is cold at its first sample only


@dataclass
class OpenedFiles:
    """The files that were opened for reading, and what came from a disk meanwhile."""

    bytes: dict[str, int] = field(default_factory=dict)  # by path, when they had been read
    disk_bytes: int | None = 0


@dataclass
class _Watching:
    found: OpenedFiles
    drops: bool
    kept: str  # a folder whose files are not dropped: they came from a store just now


_watching: _Watching | None = None


@contextmanager
def watched_files(*, drops: bool, kept: Path) -> Iterator[OpenedFiles]:
    """Note what this process opens until the end; `drops`: it is read from the disk, but for what is in `kept`."""
    global _watching
    _listen()
    found, before = OpenedFiles(), disk_bytes_read()
    _watching = _Watching(found, drops, f"{kept}{os.sep}")
    try:
        yield found
    finally:
        _watching = None
        after = disk_bytes_read()
        found.disk_bytes = None if before is None or after is None else after - before
        for path in found.bytes:
            with suppress(OSError):
                found.bytes[path] = Path(path).stat().st_size


@functools.cache
def _listen() -> None:
    """From now on Python tells of files; it cannot be told to stop, and nothing is done but in `watched_files`."""
    sys.addaudithook(_heard)


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    global _watching
    if event != "open" or _watching is None:
        return
    watching, _watching = _watching, None  # what is opened here is none of the dataset's
    try:
        _note(watching, arguments)
    finally:
        _watching = watching


def _note(watching: _Watching, arguments: tuple[Any, ...]) -> None:
    path, _, flags = arguments
    if not isinstance(path, str | bytes | os.PathLike) or flags & os.O_ACCMODE != os.O_RDONLY:
        return
    place = str(Path(os.fsdecode(path)).absolute())
    if place in watching.found.bytes or place.endswith(_NO_DATA) or place.startswith(_NO_FILES):
        return
    with suppress(OSError):  # the dataset will say it
        if stat.S_ISREG(Path(place).stat().st_mode):
            watching.found.bytes[place] = 0
            if watching.drops and not place.startswith(watching.kept) and place not in _dropped:
                _dropped.add(place)
                drop(place)


def drop(path: str) -> None:
    """Drop a file from the page cache: it is read from the disk next. Needs no rights but to read it.

    Raises `OSError`. `posix_fadvise` leaves pages that were not written to the disk yet, so they are written before.
    """
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
        if hasattr(os, "posix_fadvise"):  # macOS has none: `disk_bytes` is not known there either
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(opened)


@contextmanager
def fresh_caches(folder: Path) -> Iterator[list[Any]]:
    """Let file caches of fsspec that are made until the end keep their files below `folder`; yield the caches.

    `fsspec.config` would not do: what a user names (`cache_storage=...`) comes before it.
    """
    try:
        from fsspec.implementations.cached import CachingFileSystem
    except ImportError:
        yield []
        return
    begin, made, folders = CachingFileSystem.__init__, list[Any](), dict[str, str]()
    signature = inspect.signature(begin)

    def fresh(*arguments: Any, **options: Any) -> None:
        bound = signature.bind(*arguments, **options)
        asked = str(bound.arguments.get("cache_storage", len(made)))
        bound.arguments["cache_storage"] = folders.setdefault(asked, tempfile.mkdtemp(dir=folder))
        begin(*bound.args, **bound.kwargs)
        made.append(arguments[0])

    with replaced(CachingFileSystem, "__init__", fresh):
        yield made
