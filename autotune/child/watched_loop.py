"""The parameters of a `ProbeWatch`: its instruments, the shape of the watched loop, and its callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from autotune.child.clock import Clock
from autotune.child.full_collections import FullCollections
from autotune.child.memory_trace import MemoryTrack
from autotune.child.warmup import WarmUp


@dataclass(frozen=True, kw_only=True)
class Instruments:
    """The instruments that measure a probe."""

    clock: Clock
    update_clock: Clock | None = None  # a second clock of the device, for the optimizer alone; None: it is not timed
    warm_up: WarmUp
    track: MemoryTrack
    collections: FullCollections = field(default_factory=FullCollections)


@dataclass(frozen=True, kw_only=True)
class LoopShape:
    """The shape of the loop that is watched."""

    loader_workers: int = 0
    prefetched_batches: int = 0  # that the workers prepare in advance
    epoch_batches: int = 0  # micro-batches of an epoch that workers load; 0: unknown, or no workers
    loads: bool = False  # there is a loader to be timed alone
    exchanges: bool = False  # and an exchange of gradients among ranks
    cycle_ratio: float = 1.0  # that of `Measurement`


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """The functions that are called while a probe runs."""

    beat: Callable[[], None] = lambda: None  # at every sign of progress
    phase: Callable[[str], None] = lambda name: None  # with the name of each phase that begins
    agree: Callable[[int], int] = int  # returns rank 0's argument on all ranks; every rank must call it
