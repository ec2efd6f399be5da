"""Where a search finds the workers that measure for it: options of the search that do not identify a study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

from autotune.core.option import Option, described
from autotune.core.records import Count
from autotune.errors import UsageError

FLEET = "Several machines"  # a heading in `--help`
DATABASE = "postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True, kw_only=True)
class FleetSettings:
    """The workers that measure, and the database where they meet the search."""

    storage: Annotated[
        str, Option(help=f"Measure on the workers of this PostgreSQL database, not here: {DATABASE}.", panel=FLEET)
    ]
    workers_expected: Annotated[
        Count,
        Option(help="Begin when this many `autotune worker` have joined, or after two minutes with one.", panel=FLEET),
    ] = 1
    on: Annotated[
        str | None,
        Option(
            help="Start those workers on this Ray cluster: ray://HOST:10001, HOST:6379, or auto on one of its nodes.",
            panel=FLEET,
            metavar="ADDRESS",
        ),
    ] = None  # workers are started by hand

    def __post_init__(self) -> None:
        for option in described(FleetSettings):
            option.check(getattr(self, option.field))

    @classmethod
    def of(cls, **given: Any) -> Self | None:
        """Return the settings from values by name; None without a storage: this machine measures then.

        Raises `UsageError` for what means nothing without a storage, and `ValueError` for a value out of bounds.
        """
        given = {name: value for name, value in given.items() if value is not None}
        if "storage" in given:
            return cls(**given)
        for option in described(cls):
            if option.field in given:
                option.check(given[option.field])
        give = f"Give --storage {DATABASE} (storage in Python)"
        if "on" in given:
            raise UsageError(
                f"--on {given['on']} has Ray start workers, and no database is named in which they meet the search. "
                f"--storage was probably forgotten: Ray keeps no results. {give}, which all nodes reach, or set "
                f"AUTOTUNE_STORAGE."
            )
        if "workers_expected" in given:
            raise UsageError(
                f"--workers-expected {given['workers_expected']} waits for workers of a database, and none is named. "
                f"--storage was probably forgotten, or workers of a data loader were meant: that is --workers, "
                f"num_workers in Python's space. {give}, or leave it out."
            )
        return None
