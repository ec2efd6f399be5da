"""The kernel's count of processes in this control group that it killed for lack of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")


def oom_kills(root: Path = ROOT) -> int | None:
    """Return the kernel's out-of-memory kills in this control group since it exists; None without such a counter.

    It is the line `oom_kill N` of `memory.events` (cgroup v2) or `memory.oom_control` (v1). `root` stands for `/`.
    """
    for path in _counters(root):
        with suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    return None


def _counters(root: Path) -> Iterator[Path]:
    """Yield the counter's paths; in a container the group's own path may not exist, and the top replaces it."""
    top = root / "sys/fs/cgroup"
    lines: list[str] = []
    with suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield top / "memory" / path.lstrip("/") / "memory.oom_control"
            yield top / "memory" / "memory.oom_control"
        elif not controllers:
            yield top / path.lstrip("/") / "memory.events"
            yield top / "memory.events"
