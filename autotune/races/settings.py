"""The settings of a race: everything that command line and Python can set, except for the contestants."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from autotune.answer.confirmation_rounds import FEWEST_ROUNDS
from autotune.core.option import Option, described
from autotune.errors import UsageError
from autotune.preparation.settings import Device, Seconds, check_device
from autotune.units import parse_fraction, parse_seconds

RACE_SECONDS = 300.0  # about 24 rounds of two contestants: each probe starts in 3 s and measures for 2 s


@dataclass(frozen=True, kw_only=True)
class RaceSettings:
    """One race without its contestants."""

    baseline_commit: Annotated[
        str | None, Option(help="Add a contestant as the baseline: the first with the code of this git revision.")
    ] = None
    tolerance: Annotated[
        float,  # as for a search's answer: a smaller loss does not matter
        Meta(gt=0, lt=1, description="in (0, 1)"),
        Option(help="A contestant slower by at most this counts as equally fast.", read=parse_fraction, typed="2%"),
    ] = 0.02
    time_budget_seconds: Annotated[
        Seconds,
        Option(help="Stop after this long; sooner if it is decided.", short="-t", read=parse_seconds, typed="5m"),
    ] = RACE_SECONDS
    rounds: Annotated[
        int | None,
        Meta(ge=FEWEST_ROUNDS, description=f"at least {FEWEST_ROUNDS}"),
        Option(help="Stop after so many rounds. [default: when it is decided, or time is up]"),
    ] = None
    device: Device | None = None
    folder: Annotated[
        Path | None, Option(help="A new folder for the race. [default: studies/race-NAME]", short="-o")
    ] = None
    stops_early: bool = True  # as soon as it is decided which one is faster
    may_leave: bool = False  # who fails, or has no time for the fewest rounds; else one ends the race, or overruns it
    seed: int = 0

    def __post_init__(self) -> None:
        check_device(self.device)
        for option in described(RaceSettings):
            try:
                option.check(getattr(self, option.field))
            except ValueError as error:
                raise UsageError(f"{error}. It was probably mistyped. Correct it, or leave it out.") from error
