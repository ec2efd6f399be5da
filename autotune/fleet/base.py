"""The protocols by which a search uses several workers, and learns who starts them; imports no database driver."""

from __future__ import annotations

from dataclasses import dataclass
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


class Starter(Protocol):
    """Who starts the workers of a search."""

    @property
    def how(self) -> str:
        """How workers come, behind a colon."""
        ...

    @property
    def remedy(self) -> str:
        """What a person can do if none comes."""
        ...

    def check(self) -> None:
        """Raise `EnvironmentUnfit` if it is known that no worker will come any more."""
        ...


@dataclass(frozen=True)
class ByHand:
    """A person, or a scheduler for them."""

    study: str

    @property
    def _line(self) -> str:
        return f"autotune worker --storage ... --study {self.study}"

    @property
    def how(self) -> str:
        """See `Starter`."""
        return f"start one with `{self._line}`"

    @property
    def remedy(self) -> str:
        """See `Starter`."""
        return f"Start one with `{self._line}`"

    def check(self) -> None:
        """See `Starter`: a worker may always come."""
