"""Python's own full garbage collections while a probe trains, each of which takes as long as many steps.

    step      1 … 40 … 81 ‖ … 122 … 163 …     ‖ the window begins
    full             ●             ●          one in the window after another: what lies between two is known

They come at even intervals, because a fixed number of new objects triggers each. A window of a second holds one or
none, and its rate would be wrong by a third either way (docs/notes/timing.md 6). So a window waits for the next one.
Collections that the user's code asks for by `gc.collect()` are part of its steps and stay in them.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from msgspec.structs import replace

from autotune.targets.base import Step


def is_pythons() -> bool:
    """Return whether the full collection that begins is Python's own; else code asked for it."""
    return gc.get_count()[2] > gc.get_threshold()[2]


class FullCollections:
    """Notes full collections, and spreads those of a window over its steps. Outside of `watched` it notes none."""

    def __init__(self, *, overlapped: bool = False) -> None:
        """`overlapped`: a device computes while the host collects."""
        self._overlapped = overlapped
        self._began: float | None = None  # start of the running one; None: none runs, or only one that code asked for
        self._fresh = 0.0  # seconds since the last step
        self._steps = 0
        self._before: int | None = None  # optimizer steps taken by the last one before the window
        self._inside: list[int] = []  # the same for each in the window; until `begin`, in the warm-up
        self._collected: list[float] = []  # seconds of them in every entry, likewise

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note full collections until the `with` block ends."""
        gc.callbacks.append(self._told)
        try:
            yield
        finally:
            with suppress(ValueError):  # the user's code may have emptied the list
                gc.callbacks.remove(self._told)

    def step(self, step: Step) -> None:
        """Note the optimizer steps that have ended; once the window has begun, they are one entry."""
        self._steps += step.steps
        seconds, self._fresh = self._fresh, 0.0
        if seconds <= step.paused_seconds:  # during an evaluation, whose seconds are no part of the step
            seconds = 0.0
        self._collected.append(seconds)
        if seconds:
            self._inside.append(self._steps)

    def begin(self) -> None:
        """Begin the window; drop collections since the last step, as those while batches were loaded alone."""
        self._before = self._inside[-1] if self._inside else None
        self._inside, self._collected, self._fresh = [], [], 0.0

    @property
    def steps_apart(self) -> float | None:
        """The mean number of optimizer steps between two collections; None: none in the window followed another."""
        known = [*([] if self._before is None else [self._before]), *self._inside]
        return (known[-1] - known[0]) / (len(known) - 1) if self._inside and len(known) > 1 else None

    @property
    def is_open(self) -> bool:
        """Whether there was a collection, and the number of steps between two is not known yet."""
        return self.steps_apart is None and (self._before is not None or bool(self._inside))

    @property
    def seconds_per_step(self) -> float:
        """The mean seconds that they take of an optimizer step; 0.0 if that is not known."""
        apart = self.steps_apart
        return sum(self._collected) / len(self._inside) / apart if apart else 0.0

    def spread(self, seconds: Sequence[float], entries: Sequence[Step]) -> tuple[tuple[float, ...], list[Step]]:
        """Return the seconds of the entries, and these with their waits, each with the same share of collections.

        Both are unchanged if the number of steps between two collections is not known.
        """
        if not self.seconds_per_step:
            return tuple(seconds), list(entries)
        share = self.seconds_per_step * entries[0].steps
        both_of_each = zip(self._collected, seconds, strict=False)
        collected = [took if self._overlapped or took < whole else 0.0 for took, whole in both_of_each]
        shown = self._shown(collected, seconds) if self._overlapped else collected
        part = sum(shown) / sum(collected) if any(collected) else 1.0
        cleared = tuple(whole - took + part * share for whole, took in zip(seconds, shown, strict=True))
        usual = statistics.median(one.loader_wait_seconds for one in entries)
        both = list(zip(entries, collected, strict=True))
        loading = [took if one.loader_wait_seconds - usual > took / 2 else 0.0 for one, took in both]  # in the wait
        more = share if any(loading) else 0.0
        waits = [one.loader_wait_seconds - took + more for one, took in zip(entries, loading, strict=True)]
        return cleared, [
            replace(one, loader_wait_seconds=min(max(0.0, wait), whole))
            for one, wait, whole in zip(entries, waits, cleared, strict=True)
        ]

    @staticmethod
    def _shown(collected: Sequence[float], seconds: Sequence[float]) -> list[float]:
        """Return by how many seconds each collection made its entry longer than entries without one."""
        usual = statistics.median([whole for took, whole in zip(collected, seconds, strict=True) if not took] or [0.0])
        return [min(took, max(0.0, whole - usual)) for took, whole in zip(collected, seconds, strict=True)]

    def _told(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] < 2:
            return
        now = time.perf_counter()
        if phase == "start":
            self._began = now if is_pythons() else None
        elif self._began is not None:
            self._fresh += now - self._began
