"""The seam to the user's training code: a probe asks a target for a session and watches it train.

    target.inspect(device, config)   ──► TargetFacts   what is there, after one real step
    target.open(config, plan)        ──► Session       built, on the device, not yet stepped
    session.train(watch)                               steps, or batches alone, until the watch says stop

Our loop does what the watch asks for (`loop.Training`); a loop of the user's only reports (`own_loop.OwnSession`).
This file imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Protocol

from autotune.core.records import Record, Value
from autotune.errors import TargetError
from autotune.knobs import not_done
from autotune.knobs.observed import Observed
from autotune.targets.allocators import with_allocators


class SharedMemoryTooSmall(Exception):
    """The loader's workers would need more of /dev/shm than there is. Defined here: judging it needs no torch."""


class Order(Enum):
    """The next thing that the watch wants."""

    CONTINUE = "continue"  # an optimizer step on the next batches
    REPEAT = "repeat"  # an optimizer step on the batch seen last: loads nothing, teaches nothing, leaves no trace
    EXCHANGE = "exchange"  # a micro-step on that batch, without an exchange of gradients and with one in turn
    LOAD = "load"  # the next batch, not trained on: told to `Watch.loaded`
    STOP = "stop"


class Step(Record, frozen=True, kw_only=True):
    """One optimizer step or several, reported right after the last was issued (not: finished, on an accelerator)."""

    loss: Any  # of the last of them, 0-dim tensor on the device: mean over the micro-batches, undivided by their number
    steps: int = 1
    samples: int
    tokens: int | None
    micro_batches: int  # of all the steps
    loader_wait_seconds: float
    skipped: int  # steps that the gradient scaler skipped: the parameters did not change
    watching_seconds: float = 0.0  # that the host spent on watching it, and not on what a plain loop does
    paused_seconds: float = 0.0  # of evaluations and checkpoints within it, to be left out of its time


class Watch(Protocol):
    """The receiver of a session's reports: what derives from it ignores those that it does not define."""

    @property
    def steps_at_once(self) -> int:
        """The optimizer steps that the next report covers: those of a hundredth of a second where steps are short."""
        return 1

    def first_batch(self, seconds: float) -> None:
        """The first batch arrived `seconds` after it was asked for: worker start-up included."""
        return

    def epoch(self) -> None:
        """The loader ran out and was started again."""
        return

    def step(self, step: Step) -> Order:
        """Take note that as many optimizer steps as were asked for were issued; return what to do next."""
        ...

    def ended(self) -> bool:
        """The loop has come to its end before `STOP`. Whether what was reported will do; asked of own loops only."""
        return False

    def micro_batch(self) -> None:
        """One of several micro-batches was issued: a sign of life. Within a block of steps once a second."""
        return

    def update(self) -> None:
        """The optimizer's last update of a report begins; told once more when it was issued. Own loops do not tell."""
        return

    def micro_step(self, *, exchanges: bool) -> Order:
        """Forward and backward pass on the batch seen last, asked for by `EXCHANGE`, were issued.

        Those that exchange gradients are the last of a pair: anything but `EXCHANGE` is to follow these alone.
        """
        return Order.CONTINUE

    def loaded(self, samples: int) -> Order:
        """A batch of that many samples, asked for by `LOAD`, is there and was put aside."""
        return Order.CONTINUE


class Session(Protocol):
    """One training run, built for one configuration."""

    @property
    def loads(self) -> bool:
        """Whether `REPEAT` and `LOAD` can be asked for, which tell computing and loading apart."""
        ...

    @property
    def exchanges(self) -> bool:
        """Whether `EXCHANGE` can be asked for: several ranks train in a loop that is led."""
        ...

    @property
    def epoch_batches(self) -> int:
        """The micro-batches of an epoch; 0 where nobody knows."""
        ...

    def train(self, watch: Watch) -> None:
        """Take optimizer steps until the watch says `STOP`. Raises what the user's code raises."""
        ...

    @property
    def label(self) -> str:
        """The name of the user's code in messages."""
        ...

    def observed(self) -> Observed:
        """The settings that training was seen to have so far."""
        ...

    def loss_scale(self) -> float | None:
        """Return the factor of the gradient scaler for the next loss; None without a scaler. Waits for the device."""
        ...

    @property
    def shapes_vary(self) -> bool:
        """Whether batches so far differed in more than their number of samples."""
        ...

    def train_worst(self) -> int:
        """Take one optimizer step on the worst case that the data hold; returns its micro-batches (0: none known).

        Its peaks are what is asked for: it belongs to no epoch, and no watch hears of it.
        """
        ...

    def validate(self, batches: int) -> int:
        """Run up to `batches` validation batches without gradients; returns how many were run (0: none offered)."""
        ...


def check_effect(session: Session, values: Mapping[str, Value]) -> None:
    """Raise `TargetError` if a value was not what the session trained with: it would be measured under a false name."""
    if found := not_done(values, with_allocators(session.observed())):
        raise without_effect(session.label, *found)


def without_effect(label: str, asked: str, seen: str) -> TargetError:
    """Return the error of user code that was given one setting and trained with another."""
    return TargetError(
        f"{label} was given {asked} and trained with {seen}. It probably ignores that setting, or changes it. Correct "
        f"what it is given, or leave that knob out: a measurement would have a false name."
    )


class ShapeRunTraining(Protocol):
    """One training run whose tensors have shapes and no contents."""

    @property
    def training(self) -> Any:
        """The loop, a `Training`, with its model and optimizers."""
        ...

    def tensors(self) -> Iterator[Any]:
        """The tensors that live as long as the run does: parameters and buffers."""
        ...

    def step(self, batch_size: int, watching: AbstractContextManager[Any], hold: Callable[[Any], None]) -> None:
        """Take one optimizer step on micro-batches of `batch_size`; `hold` is told the tensors of the batch.

        `watching` is entered for its duration. Raises whatever user code and torch make of such tensors.
        """
        ...


class ShapeRunTarget(Protocol):
    """A target, loaded once, of which shape runs are built."""

    def training(self, values: dict[str, Value], micro_batches: int) -> ShapeRunTraining:
        """A run with these values of knobs and that many micro-batches per optimizer step; raises as `open` does."""
        ...
