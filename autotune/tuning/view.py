"""A study as terminal, page and server see it: everything that was recorded, read from JSON alone."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from autotune import folder as disk
from autotune.errors import StudyNotFound
from autotune.objective import judge_among
from autotune.records import StudyRequest
from autotune.requests import StabilityRequest
from autotune.results import LossVerdict, StabilityResult, Trial, Verdict
from autotune.stability import Thresholds, settled
from autotune.tuning.batch_advice import informed
from autotune.tuning.recommendation import Recommendation, read_best


@dataclass(frozen=True, kw_only=True, eq=False)  # two moments are never compared, and one may be a key
class StudyView:
    """One moment of a study. Reading it takes no lock that anybody would notice, and no torch or Optuna."""

    folder: Path
    request: StudyRequest
    trials: tuple[Trial, ...]
    recommendation: Recommendation | None
    running: bool
    comparisons: tuple[tuple[StabilityRequest, StabilityResult], ...] = ()  # of losses, in the order they were run

    @property
    def name(self) -> str:
        """What people call it."""
        return self.folder.resolve().name

    @property
    def stability(self) -> tuple[LossVerdict, ...]:
        """Of every arithmetic that was compared with full precision, what came out."""
        return settled(self.comparisons, Thresholds(tolerance=self.request.goal.loss_tolerance))

    def verdict(self, trial: Trial) -> Verdict:
        """Feasible or not, worth what, and why."""
        if id(trial) not in self._judged:  # a page asks a dozen times
            self._judged[id(trial)] = trial, judge_among(trial, self.trials, self.request)
        return self._judged[id(trial)][1]

    @cached_property
    def _judged(self) -> dict[int, tuple[Trial, Verdict]]:
        """Those asked for so far, by identity; the trial beside its verdict, so that its identity stays its own."""
        return {}


def load_view(folder: Path, trials: tuple[Trial, ...] | None = None) -> StudyView:
    """Read a study, except its `trials` if they are already known. Raises `StudyNotFound` and `StudyError`."""
    if not (folder / disk.STUDY).is_file():
        raise StudyNotFound(
            f"{folder} holds no {disk.STUDY}. It is not a study, or only its {disk.BEST} was kept. "
            f"`autotune best {folder}` needs no more than that; everything else needs the whole folder, of which the "
            f"command that searched it rebuilds {disk.STUDY} if {disk.PROBES}/ and {disk.INSPECT}/ are there."
        )
    best = folder / disk.BEST
    return StudyView(
        folder=folder,
        request=informed(folder, disk.read_request(folder)),
        trials=disk.read_trials(folder) if trials is None else trials,
        recommendation=read_best(best) if best.is_file() else None,
        running=is_running(folder),
        comparisons=disk.attempts(folder, StabilityRequest.kind()),
    )


def is_running(folder: Path) -> bool:
    """Whether somebody holds the lock; asked for with a shared lock that is given back at once."""
    try:
        # Neither a link to elsewhere nor a pipe that nobody writes to may hold the reader up.
        lock = os.open(folder / disk.LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
    return False
