"""The settings of a race."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autotune.answer.confirmation_rounds import FEWEST_ROUNDS
from autotune.errors import UsageError
from autotune.preparation.settings import check_device

RACE_TOLERANCE = 0.02  # as of a search's answer: slower by less is not worth a thought
RACE_SECONDS = 300.0  # of two contestants about 24 rounds: a start of 3 s, a window of 2 s, and what lies between


@dataclass(frozen=True, kw_only=True)
class RaceSettings:
    """One race: all of it but the contestants."""

    tolerance: float = RACE_TOLERANCE
    time_budget_seconds: float = RACE_SECONDS
    rounds: int | None = None  # at most; None: as many as there is time for
    stops_early: bool = True  # once it is decided who is faster
    device: str | None = None  # None: the accelerator if there is one, else the CPU
    folder: Path | None = None  # a new one; None: one below studies/
    baseline_commit: str | None = None  # the first contestant's code of that revision is the baseline
    seed: int = 0

    def __post_init__(self) -> None:
        check_device(self.device)
        for name, value, rule, fits in (
            ("tolerance", self.tolerance, "in (0, 1)", 0 < self.tolerance < 1),
            ("time_budget", self.time_budget_seconds, "above 0 seconds", self.time_budget_seconds > 0),
            ("rounds", self.rounds, f"at least {FEWEST_ROUNDS}", self.rounds is None or self.rounds >= FEWEST_ROUNDS),
        ):
            if not fits:
                raise UsageError(
                    f"{name} must be {rule}, got {value}. It was probably mistyped. Correct it, or leave it out."
                )
