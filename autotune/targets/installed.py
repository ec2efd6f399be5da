"""Whether a file was installed by pip or by the system: a library's, not the user's own code."""

from __future__ import annotations

from pathlib import Path

_FOLDERS = {"site-packages", "dist-packages"}  # of pip and of Debian


def is_installed(file: Path) -> bool:
    """Return whether the file lies where packages are installed."""
    return not _FOLDERS.isdisjoint(file.parts)
