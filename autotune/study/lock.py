"""The lock of a study that is being searched."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Self

from autotune.errors import EnvironmentUnfit, StudyError
from autotune.study import disk

LOCK_ATTEMPTS = 5


class Lock:
    """Exclusive use of a study folder, from its construction to the end of its `with`, or of the process."""

    def __init__(self, folder: Path) -> None:
        """Lock `folder`, made if necessary. Raises `StudyError` if another search holds it, and `EnvironmentUnfit`."""
        self._files = ExitStack()
        self.add(folder)

    def add(self, folder: Path) -> None:
        """Lock another folder, too. A lock stays with its file if that is moved."""
        path = folder / disk.LOCK
        file = None
        while file is None or not _lies_at(file, path):  # the former holder has moved or deleted the study
            disk.make(folder)
            try:
                file = self._files.enter_context(path.open("a+"))
            except OSError as error:
                raise disk.unwritable(folder, error) from error
            self._take(file, folder)
        try:
            file.truncate(0)
            os.write(file.fileno(), str(os.getpid()).encode())  # unbuffered: nothing is left to write on closing
        except OSError as error:
            self.release()
            raise disk.unwritable(folder, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the locks."""
        self._files.close()

    def _take(self, file: IO[str], folder: Path) -> None:
        try:
            _flock(file)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            self.release()
            raise StudyError(
                f"{folder} is being searched by process {owner}. Two searches on one study would disturb each other's "
                f"measurements. Wait for it, stop it (Ctrl-C keeps the study), or choose another place with --study."
            ) from None
        except OSError as error:
            self.release()
            raise EnvironmentUnfit(
                f"{file.name} cannot be locked: {error.strerror}. Its file system probably has no locks, as Lustre "
                f"mounted without `flock`, some NFS and some FUSE. Choose a folder on a local disk with --study, or "
                f"have it mounted with locks."
            ) from error


def _lies_at(file: IO[str], path: Path) -> bool:
    """Return whether the locked file is still the one at `path`."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _flock(file: IO[str]) -> None:
    """Lock exclusively, in several tries, because a reader that tests whether a search runs holds the lock briefly."""
    for _ in range(LOCK_ATTEMPTS - 1):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.05)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
