"""The seam between a search and several workers; imports no database."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from autotune.fleet.records import FleetWorker
from autotune.launch.base import Launcher


@runtime_checkable
class Fleet(Launcher, Protocol):
    """A launcher that has several workers. What it runs itself goes to one of them, the home of the search."""

    def workers(self) -> tuple[FleetWorker, ...]:
        """Return the workers that are there, in the order in which they came."""
        ...

    def on(self, worker: int) -> Launcher:
        """Return a launcher for that worker; if it is lost, another one carries on."""
        ...

    def mark(self, worker: int, *, reference: float | None, quarantined: str) -> None:
        """Keep what the reference of a worker showed, and why it gets no more probes, if so."""
        ...

    def stop(self) -> None:
        """Break off what other threads wait for: their requests raise."""
        ...
