"""Files that a command was asked to write."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import UsageError


def written(path: Path, content: bytes) -> None:
    """Put `content` into the file, its folder made if need be. Raises `UsageError` where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}. It is probably a folder, or in one that is "
            f"read-only or full. Give another file with -o."
        ) from error
