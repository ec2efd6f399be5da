"""The seam to the user's training code: a probe asks a target for a session and watches it train.

    inspect(reference) ──► TargetFacts          what is there, resolved and tried
    open(reference, config, plan) ──► Session    built, on the device, not yet stepped
    session.train(watch)                         steps until the watch says stop

A target may own its loop (a Trainer with callbacks) or let ours run: both only report to the watch.
This file imports no torch; adapters beside it do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from autotune.knobs.base import Plan
from autotune.records import Config, TargetFacts


class Command(Enum):
    """What the watch wants after an optimizer step."""

    CONTINUE = "continue"
    DRAIN = "drain"  # take from the loader what it prepared in advance, untrained, then continue
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One optimizer step, reported right after it was issued (not: finished, on an accelerator)."""

    loss: Any  # 0-dim tensor on the device: mean over the micro-batches, undivided by the accumulation
    samples: int
    tokens: int | None
    micro_batches: int
    loader_wait_seconds: float
    skipped: bool  # by the gradient scaler: the parameters did not change


class Watch(Protocol):
    """What a session reports to."""

    def first_batch(self, seconds: float) -> None:
        """The first batch arrived `seconds` after it was asked for: worker start-up included."""
        ...

    def epoch(self) -> None:
        """The loader ran out and was started again."""
        ...

    def step(self, step: Step) -> Command:
        """An optimizer step was issued."""
        ...


class Session(Protocol):
    """One training run, built for one configuration."""

    def train(self, watch: Watch) -> None:
        """Take optimizer steps until the watch says `STOP`. Raises what the user's code raises."""
        ...

    def validate(self, batches: int) -> int:
        """Run up to `batches` validation batches without gradients; returns how many were run (0: none offered)."""
        ...


class Target(Protocol):
    """A kind of user code that can be trained."""

    def inspect(self, device: str, config: Config | None, phase: Callable[[str], None]) -> TargetFacts:
        """Resolve the contract and take one real step. `phase` is told `load`, `build` and `warm-up` as they begin.

        Raises `TargetError`.
        """
        ...

    def open(self, config: Config, plan: Plan, phase: Callable[[str], None]) -> Session:
        """Load and build one training run. Raises `TargetError`."""
        ...
