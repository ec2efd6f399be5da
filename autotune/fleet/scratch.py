"""The folder in which a worker measures, outside of any study; each worker removes those that killed workers left."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "autotune-worker-"
LEAST_AGE_SECONDS = 60.0  # of a folder that is swept away: a younger one may not be locked yet


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder for this worker, locked by the kernel as long as the process lives, and remove it at the end."""
    sweep()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as place:
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(place)
        finally:
            os.close(lock)


def sweep(least_age_seconds: float = LEAST_AGE_SECONDS) -> None:
    """Remove the folders of this user's workers whose process has ended."""
    for place in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # locked, another's, a link, or gone meanwhile
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                known = os.fstat(lock)
                is_old = time.time() - known.st_mtime > least_age_seconds
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if known.st_uid == os.getuid() and is_old:
                    shutil.rmtree(place)
            finally:
                os.close(lock)
