"""Decides whether a file was installed by pip or by the system: then it is a library's, not the user's."""

from __future__ import annotations

from pathlib import Path

_FOLDERS = {"site-packages", "dist-packages"}  # of pip and of Debian


def is_installed(file: Path) -> bool:
    """Return whether the file lies where packages are installed."""
    return not _FOLDERS.isdisjoint(file.parts)
