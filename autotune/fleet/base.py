"""The protocol by which a search uses several workers; imports no database driver."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from autotune.fleet.records import FleetWorker
from autotune.launch.base import Launcher


@runtime_checkable
class Fleet(Launcher, Protocol):
    """A launcher that has several workers. Its own `run` goes to one of them, the home of the search."""

    def workers(self) -> tuple[FleetWorker, ...]:
        """Return the workers that are there, in the order in which they came."""
        ...

    def on(self, worker: int) -> Launcher:
        """Return a launcher for that worker; if the worker is lost, another one runs the request."""
        ...

    def mark(self, worker: int, *, reference: float | None, quarantined: str) -> None:
        """Store the score of the baseline on a worker, and why it gets no more probes; empty: it goes on."""
        ...

    def stop(self) -> None:
        """Break off what other threads wait for: their requests raise."""
        ...
