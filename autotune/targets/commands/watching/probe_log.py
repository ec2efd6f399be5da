"""The log of a probe, read by the process that writes it: what a program said before it ended."""

from __future__ import annotations

from pathlib import Path

from autotune.targets.commands.distributed import SAID_BY_LAUNCHERS

LAST_LINES = 5
_LOG = Path("/proc/self/fd/1")
_TAIL_BYTES, _SHOWN_CHARACTERS = 2**16, 2000


def last_lines() -> str:
    """Return the end of it, indented; empty where it cannot be read."""
    text = SAID_BY_LAUNCHERS.sub("", own_log_tail()[-_SHOWN_CHARACTERS:]).strip("\n")
    return "\n".join(f"    {line}" for line in text.splitlines()[-LAST_LINES:])


def with_last_lines(text: str) -> str:
    """Return a message with what the program wrote last, on lines of its own: tables show the first line alone."""
    lines = last_lines()
    return f"{text}\nIts last lines:\n{lines}" if lines else text


def own_log_tail() -> str:
    """Return its last 64 KiB; empty where it cannot be read."""
    try:
        with _LOG.open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""
