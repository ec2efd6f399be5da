"""Checks before every fork that a forked process would not differ from a fresh one."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_HARMLESS = ("/dev/zero", "/dev/random", "/dev/urandom")
_HARMLESS_MAPPING = "/dev/shm/__KMP_REGISTERED_LIB"  # OpenMP of LLVM and Intel: a mark that it is loaded
_STREAMS = range(3)  # standard streams, which forked probes get anew


def unsafe(own: Collection[int], probes: Collection[int] = ()) -> str:
    """Return why this process may not be forked; empty: it may. `own` are our descriptors, `probes` our children."""
    if (threads := len(list(Path("/proc/self/task").iterdir()))) != 1:
        return f"has {threads} threads"
    torch = sys.modules.get("torch")
    for kind in ("cuda", "xpu"):
        if torch is not None and getattr(torch, kind).is_initialized():
            return f"has initialised {kind}"
    return _child(probes) or _descriptor(own) or _mapping()


def _child(probes: Collection[int]) -> str:
    try:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    except OSError as error:
        return f"cannot see its child processes: {error.strerror}"
    other = next((child for child in children if int(child) not in probes), None)
    return f"has started process {other}" if other else ""


def _descriptor(own: Collection[int]) -> str:
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing itself
            place = str(entry.readlink())
            if int(entry.name) not in (*_STREAMS, *own) and place not in _HARMLESS:
                return f"has opened {place}"
    return ""


def _mapping() -> str:
    """Return a memory mapping that a probe would share with the fork server and later probes; empty: there is none."""
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        span, permissions, *_ = line.split(maxsplit=2)
        if "w" in permissions and permissions[3] == "s" and _HARMLESS_MAPPING not in line:
            return f"has writable memory that its forks would share, at {span}"
    return ""
