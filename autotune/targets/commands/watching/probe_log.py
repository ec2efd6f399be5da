"""Reads the log of a probe in the process that writes it: the program's last lines before it ended."""

from __future__ import annotations

from pathlib import Path

from autotune.targets.commands.distributed import SAID_BY_LAUNCHERS

LAST_LINES = 5
_LOG = Path("/proc/self/fd/1")
_TAIL_BYTES, _SHOWN_CHARACTERS = 2**16, 2000


def last_lines() -> str:
    """Return the last lines of the log, indented; empty if it cannot be read."""
    text = SAID_BY_LAUNCHERS.sub("", own_log_tail()[-_SHOWN_CHARACTERS:]).strip("\n")
    return "\n".join(f"    {line}" for line in text.splitlines()[-LAST_LINES:])


def with_last_lines(text: str) -> str:
    """Return a message with the program's last lines appended on lines of their own: tables show only the first."""
    lines = last_lines()
    return f"{text}\nIts last lines:\n{lines}" if lines else text


def own_log_tail() -> str:
    """Return the last 64 KiB of the log; empty if it cannot be read."""
    try:
        with _LOG.open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""
