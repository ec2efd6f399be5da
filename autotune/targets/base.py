"""The interface to the user's training code: a probe asks a target for a session and watches it train.

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
    """The loader's workers would need more of /dev/shm than is free. Defined here so that judging it needs no torch."""


class Order(Enum):
    """The next action that the watch wants."""

    CONTINUE = "continue"  # an optimizer step on the next batches
    REPEAT = "repeat"  # an optimizer step on the batch seen last: loads nothing, teaches nothing, leaves no trace
    EXCHANGE = "exchange"  # a micro-step on the last batch, alternately without and with an exchange of gradients
    LOAD = "load"  # load the next batch without training on it; reported to `Watch.loaded`
    STOP = "stop"


class Step(Record, frozen=True, kw_only=True):
    """One or more optimizer steps, reported right after the last was issued (on an accelerator not yet finished)."""

    loss: Any  # of the last step, 0-dim tensor on the device: mean over its micro-batches
    steps: int = 1
    samples: int
    tokens: int | None
    micro_batches: int  # of all the steps
    loader_wait_seconds: float
    skipped: int  # steps that the gradient scaler skipped: the parameters did not change
    watching_seconds: float = 0.0  # that the host spent on watching, beyond the work of a plain loop
    paused_seconds: float = 0.0  # of evaluations and checkpoints within it, to be left out of its time


class Watch(Protocol):
    """The receiver of a session's reports. A derived class ignores the reports that it does not define."""

    @property
    def steps_at_once(self) -> int:
        """The number of optimizer steps in the next report: those of a hundredth of a second if steps are short."""
        return 1

    def first_batch(self, seconds: float) -> None:
        """Note that the first batch arrived `seconds` after it was asked for, including the start of workers."""
        return

    def epoch(self) -> None:
        """Note that an epoch ended and the loader was started again."""
        return

    def step(self, step: Step) -> Order:
        """Note that the optimizer steps that were asked for were issued; return the next order."""
        ...

    def ended(self) -> bool:
        """Note that the loop ended before `STOP`; return whether its reports suffice. For the user's own loops only."""
        return False

    def micro_batch(self) -> None:
        """Note progress: one of several micro-batches was issued. In a block of steps it is called once a second."""
        return

    def update(self) -> None:
        """Note that the last update of a report begins; called again when it was issued. Own loops never call it."""
        return

    def micro_step(self, *, exchanges: bool) -> Order:
        """Note that a forward and backward pass on the last batch, asked for by `EXCHANGE`, were issued.

        A micro-step that exchanges gradients is the second of a pair: only after it may another order than `EXCHANGE`
        follow.
        """
        return Order.CONTINUE

    def loaded(self, samples: int) -> Order:
        """Note that a batch of `samples` samples, asked for by `LOAD`, was loaded and put aside."""
        return Order.CONTINUE


class Session(Protocol):
    """One training run, built for one configuration."""

    @property
    def loads(self) -> bool:
        """Whether `REPEAT` and `LOAD` can be asked for, which time computing and loading separately."""
        ...

    @property
    def exchanges(self) -> bool:
        """Whether `EXCHANGE` can be asked for: several ranks train, and in our loop."""
        ...

    @property
    def epoch_batches(self) -> int:
        """The micro-batches of an epoch; 0 if unknown."""
        ...

    def train(self, watch: Watch) -> None:
        """Take optimizer steps until the watch says `STOP`. Raises what the user's code raises."""
        ...

    @property
    def label(self) -> str:
        """The name of the user's code in messages."""
        ...

    def observed(self) -> Observed:
        """Return the settings that training was seen to use so far."""
        ...

    def loss_scale(self) -> float | None:
        """Return the factor of the gradient scaler for the next loss; None without a scaler. Waits for the device."""
        ...

    @property
    def shapes_vary(self) -> bool:
        """Whether the shapes of batches so far differed in more than their number of samples."""
        ...

    def train_worst(self) -> int:
        """Take one optimizer step on the largest batch of the data; return its micro-batches (0: none is known).

        It serves to measure peak memory: it belongs to no epoch, and no watch sees it.
        """
        ...

    def validate(self, batches: int) -> int:
        """Run up to `batches` validation batches without gradients; return how many were run (0: there are none)."""
        ...


def check_effect(session: Session, values: Mapping[str, Value], samples: int | None = None) -> None:
    """Raise `TargetError` if the session trained with another value: the measurement would be attributed wrongly.

    `samples` are those of its dataset, if known.
    """
    observed = with_allocators(session.observed())
    asked = values.get("batch_size")
    if samples is not None and isinstance(asked, int) and asked > samples == observed.micro_batch:
        raise TargetError(
            f"{session.label} was given batch_size {asked:,}, and its dataset has {samples:,} samples: no batch can be "
            f"larger. The batch was probably meant for a larger dataset. Give it {samples:,} or less."
        )
    shape, seen = observed.guessed_from, observed.micro_batch
    if shape is not None and isinstance(asked, int) and asked != seen:
        raise TargetError(
            f"{session.label} was given batch_size {asked}, and its model was called with an input of shape {shape}. "
            f"Without a DataLoader the first dimension, {seen}, is taken for the batch size, and that is a guess: the "
            f"input may be one sample, its samples may be another dimension, or {session.label} ignores the setting. "
            f"The measurement would have a wrong name: report the samples of each optimizer step, "
            f"autotune.step(loss=loss, samples=...), or leave the batch size out, --map batch=no."
        )
    if found := not_done(values, observed):
        raise without_effect(session.label, *found)


def without_effect(label: str, asked: str, seen: str) -> TargetError:
    """Return the error for user code that was given one setting and trained with another."""
    return TargetError(
        f"{label} was given {asked} and trained with {seen}. It probably ignores that setting, or changes it. Correct "
        f"what it is given, or leave that knob out: the measurement would have a wrong name."
    )


class ShapeRunTraining(Protocol):
    """One training run whose tensors have shapes and no contents."""

    @property
    def training(self) -> Any:
        """The loop, a `Training`, with its model and optimizers."""
        ...

    def tensors(self) -> Iterator[Any]:
        """Yield the tensors that live as long as the run does: parameters and buffers."""
        ...

    def step(self, batch_size: int, watching: AbstractContextManager[Any], hold: Callable[[Any], None]) -> None:
        """Take one optimizer step on micro-batches of `batch_size`; `hold` is called with the tensors of the batch.

        `watching` is entered for the duration of the step. Raises whatever user code or torch raise on such tensors.
        """
        ...


class ShapeRunTarget(Protocol):
    """A target that was loaded once, and from which shape runs are built."""

    def training(self, values: dict[str, Value], micro_batches: int) -> ShapeRunTraining:
        """Return a run with these knob values and `micro_batches` per optimizer step. Raises as `Target.open` does."""
        ...
