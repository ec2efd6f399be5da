"""The lock of a study that is being searched."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from autotune.errors import EnvironmentUnfit, StudyError
from autotune.study import layout as disk

LOCK_ATTEMPTS = 5


class Lock:
    """Exclusive use of a study folder, released by the kernel when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        path = folder / disk.LOCK
        try:
            self._file = path.open("a+")
        except OSError as error:
            raise disk.unwritable(folder, error) from error
        try:
            _take(self._file)
        except BlockingIOError:
            self._file.seek(0)
            owner = self._file.read().strip() or "unknown"
            self._file.close()
            raise StudyError(
                f"{folder} is being searched by process {owner}. Two searches on one study would measure each other. "
                f"Wait for it, stop it (Ctrl-C keeps the study), or choose another place with --study."
            ) from None
        except OSError as error:
            self._file.close()
            raise EnvironmentUnfit(
                f"{path} cannot be locked: {error.strerror}. Its file system probably has no locks, as Lustre mounted "
                f"without `flock`, some NFS and some FUSE. Choose a folder on a local disk with --study, or have it "
                f"mounted with locks."
            ) from error
        try:
            self._file.truncate(0)
            os.write(self._file.fileno(), str(os.getpid()).encode())  # unbuffered: nothing is left to write on closing
        except OSError as error:
            self._file.close()
            raise disk.unwritable(folder, error) from error

    def release(self) -> None:
        """Release the lock."""
        self._file.close()


def _take(file: IO[str]) -> None:
    """Lock exclusively. Tried more than once: a reader that asks whether a search runs holds it for a moment."""
    for _ in range(LOCK_ATTEMPTS - 1):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.05)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
