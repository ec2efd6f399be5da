"""A study as terminal, page and server see it: everything that was recorded, read from JSON alone."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path

from autotune import codec
from autotune import folder as disk
from autotune.errors import StudyNotFound
from autotune.objective import judge
from autotune.records import StudyRequest
from autotune.results import Trial, Verdict
from autotune.tuning.recommendation import Recommendation


@dataclass(frozen=True, kw_only=True)
class StudyView:
    """One moment of a study. Reading it takes no lock that anybody would notice, and no torch or Optuna."""

    folder: Path
    request: StudyRequest
    trials: tuple[Trial, ...]
    recommendation: Recommendation | None
    running: bool

    @property
    def name(self) -> str:
        """What people call it."""
        return self.folder.resolve().name

    def verdict(self, trial: Trial) -> Verdict:
        """Feasible or not, worth what, and why."""
        return judge(trial.result, self.request)


def load_view(folder: Path) -> StudyView:
    """Read a study. Raises `StudyNotFound` and `StudyError`."""
    if not (folder / disk.STUDY).is_file():
        raise StudyNotFound(
            f"{folder} holds no {disk.STUDY}. It is not a study, or only its {disk.BEST} was kept. "
            f"`autotune best {folder}` needs no more than that; everything else needs the whole folder."
        )
    best = folder / disk.BEST
    return StudyView(
        folder=folder,
        request=disk.read_request(folder),
        trials=disk.read_trials(folder),
        recommendation=codec.read(best, Recommendation) if best.is_file() else None,
        running=_running(folder),
    )


def _running(folder: Path) -> bool:
    """Whether somebody holds the lock; asked for with a shared lock that is given back at once."""
    try:
        with (folder / disk.LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
