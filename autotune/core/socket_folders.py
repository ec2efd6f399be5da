"""The folders in which the processes of a probe pass tensors on, in the system's folder for temporary files.

Standard library only: the guard of a probe imports it before torch.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path


def new_socket_folder(tag: str) -> str:
    """Make a folder for the probe with that tag, and return its path. Raises `OSError` if nothing can be written."""
    return tempfile.mkdtemp(prefix=_prefix(tag))


def take_sockets_away(tag: str) -> None:
    """Delete these folders of a probe, which it leaves if it is killed."""
    with suppress(OSError):  # there is no folder for temporary files
        for place in Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).glob(f"{_prefix(tag)}*"):
            shutil.rmtree(place, ignore_errors=True)


def _prefix(tag: str) -> str:
    return f"pymp-{tag[:8]}"  # short: the path of a socket has 107 bytes at most
