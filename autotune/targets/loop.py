"""The training loop of a probe: the usual plain loop, with all places where a knob may change it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autotune.knobs.base import Plan
from autotune.knobs.observed import Observed
from autotune.targets import switches
from autotune.targets.base import Order, Step, Watch
from autotune.targets.batches import Shapes, are_tensors, count_tokens, move
from autotune.targets.data import Epochs, Source
from autotune.targets.feed import Feed
from autotune.targets.frozen_steps import without_learning
from autotune.targets.loss import Loss, checked_loss
from autotune.targets.optimizers import Optimizers
from autotune.targets.own_step import OwnStep
from autotune.targets.ranks.parallel import OneRank
from autotune.targets.update import Update
from autotune.targets.worst_batch import Same, Worst

_NO_CONTEXT = nullcontext()
_END = object()  # no batch can be this
BEAT_SECONDS = 1.0  # between reports of progress within a block, which should last a hundredth of that


@dataclass(kw_only=True)
class Training:
    """One training run on the device: a `Session`."""

    plan: Plan
    model: torch.nn.Module
    source: Source
    validation: Source | None
    worst: Worst
    loss: Loss  # the user's, or inferred
    make_optimizers: Optimizers
    make_update: Callable[..., Update]  # makes the update of the optimizers, with a gradient scaler
    count_samples: Callable[[Any], int]
    parallel: OneRank  # the model as ranks train it together
    loads: bool = True  # whether there is a loader; a synthetic batch has none
    own_step: OwnStep | None = None  # the user's step, in place of forward pass, loss and backward pass
    update: Update | None = None  # made when the first batch is there
    label: str = "the target"

    def __post_init__(self) -> None:
        self._scaler = torch.amp.GradScaler(self.plan.device.partition(":")[0], enabled=self.plan.scale_loss)
        self._shapes = Shapes()
        self._watch: Watch | None = None  # of `train`; is told of micro-batches after `train`, too
        self.to_device, self._context = self._copy(), self._forward_context()
        self._counts_tokens = True
        self._ended = 0.0  # when the last report was made, by `time.perf_counter`
        self.feed: Feed | None = None  # of `train`; kept, so that workers live until their memory is read

    def train(self, watch: Watch) -> None:
        """Follow the orders of the watch until `STOP`. Raises what the user's code raises."""
        self._watch = watch
        with self.parallel.explaining():
            self._follow(watch)

    def _follow(self, watch: Watch) -> None:
        feed = self.feed = Feed(self.source, watch)
        order = Order.CONTINUE
        while order is not Order.STOP:
            if order is Order.LOAD:
                order = watch.loaded(self.count_samples(feed.unused()))
            elif order is Order.EXCHANGE and self.update:
                with feed.repeating(), without_learning(self.update, self.plan.device):
                    order = self._compare_micro_steps(watch, feed.next(), self.update)
            elif order is Order.REPEAT and self.update:
                with feed.repeating(), without_learning(self.update, self.plan.device):
                    while order is Order.REPEAT:
                        order = watch.step(self._take(watch.steps_at_once, feed))
            else:
                order = watch.step(self._take(watch.steps_at_once, feed))

    @property
    def epoch_batches(self) -> int:
        """The batches of our own loader; 0 for a stream, whose end is unknown, and for a loader of the user's."""
        return self.source.batches if isinstance(self.source, Epochs) else 0

    @property
    def exchanges(self) -> bool:
        """Whether several ranks exchange gradients at the end of an optimizer step, and not inside a user's `step`."""
        return self.parallel.sync is not None and self.own_step is None

    def gradients(self, batch: Any, *, exchanges: bool = True) -> None:
        """Add the gradients of one micro-batch; `exchanges`: averaged over all ranks."""
        self.parallel.sync(exchanges)
        with self._context():
            loss = checked_loss(self.parallel.loss(self.to_device(batch)), training=True)
        scaled: Any = self._scaler.scale(loss)
        scaled.backward()

    def _compare_micro_steps(self, watch: Watch, batch: Any, update: Update) -> Order:
        """Take micro-steps in pairs, without and with an exchange, until the watch gives another order; return it."""
        order, exchanges = Order.EXCHANGE, False
        while order is Order.EXCHANGE:
            self.gradients(batch, exchanges=exchanges)
            order, exchanges = watch.micro_step(exchanges=exchanges), not exchanges
        for one in update.optimizers:
            one.zero_grad(set_to_none=True)
        return order

    def observed(self) -> Observed:
        """Return the settings that training was seen to use; autocast and accumulation are this loop's own."""
        return Observed(
            threads=torch.get_num_threads(),
            **switches.standing(self.update.optimizers if self.update else ()),
        )

    def loss_scale(self) -> float | None:
        """Return the gradient scaler's present factor; None without a scaler."""
        return self._scaler.get_scale() if self._scaler.is_enabled() else None

    @property
    def shapes_vary(self) -> bool:
        """Whether batches so far differed in more than their number of samples."""
        return self._shapes.vary

    def train_worst(self) -> int:
        """Take one optimizer step on the largest batch that is known; return its micro-batches (0: none is known)."""
        batch = self.worst(not self.parallel.everybody(not self._shapes.vary))
        if not self.parallel.everybody(batch is not None):
            return 0
        self._take(1, Same(batch), reports=False)
        return self.plan.micro_batches_per_step

    def validate(self, batches: int) -> int:
        """Evaluate up to `batches` batches as between epochs; return how many were evaluated."""
        if self.validation is None:
            return 0
        self.model.eval()
        done, held_out = 0, iter(self.validation())
        with torch.no_grad():
            while done < batches and self.parallel.everybody((batch := next(held_out, _END)) is not _END):
                self.evaluate(batch)
                done += 1
        self.model.train()
        return done

    def evaluate(self, batch: Any) -> Tensor:
        """Return the loss of a batch that is not trained on."""
        with self._context():
            return checked_loss(self.parallel.validation_loss(self.to_device(batch)), training=False)

    def _take(self, steps: int, feed: Feed | Same, *, reports: bool = True) -> Step:
        """Take optimizer steps; return their report. Only a gradient scaler's own check waits for an accelerator.

        Work beyond that of a plain loop makes short steps look slow: `watching_seconds` measures it. A call or two in
        the innermost loop takes 1 us of a step (measured), so most work is done once for all the steps. Without
        `reports` batches are not counted and no loss is read, so that they may be fake.
        """
        scaler, count, context, copy = self._scaler, self.plan.micro_batches_per_step, self._context, self.to_device
        divisor, watch = self.plan.accumulation_steps, self._watch if reports else None
        beat = self._watch.micro_batch if self._watch and steps * count > 1 else None
        own, sync, loss_of = self.own_step, self.parallel.sync, self.parallel.loss
        late = time.perf_counter() + BEAT_SECONDS
        watch_update = watch.update if watch and own is None else None
        update: Callable[[], bool] | None = self.update and (own.end if own else self.update)
        watching_seconds = (
            time.perf_counter() - self._ended if self._ended else 0.0
        )  # the watch was reading the last report until now
        samples = tokens = skipped = 0
        waited, losses = feed.waited, list[Tensor]()
        for left in range(steps, 0, -1):
            for number in range(1, count + 1):
                batch = feed.next()
                if reports:
                    size = self.count_samples(batch)
                    samples += size
                    if self._counts_tokens:
                        tokens += count_tokens(batch)
                    self._shapes.note(batch, size, feed.arrived)
                    watching_seconds += time.perf_counter() - feed.arrived
                if update is None:
                    update = self.begin(batch)
                if sync:
                    sync(number == count)  # with ranks: the last micro-batch exchanges the sum of all micro-batches
                batch = copy(batch)  # it lives until the next one is there, as in any loop: the peak is the user's
                with context():
                    loss = own(batch) if own else checked_loss(loss_of(batch), training=True)
                if own is None:
                    # So the sum is the gradient of one large batch. A division by 1 would take 20 us (measured).
                    share: Any = scaler.scale(loss if divisor == 1 else loss / divisor)
                    share.backward()
                if left == 1:
                    losses.append(loss.detach())
                if beat and (steps == 1 or feed.arrived > late):
                    beat()
                    late = feed.arrived + BEAT_SECONDS
            assert update is not None, "there is at least one micro-batch"
            if watch_update and left == 1:
                watch_update()
            skipped += not update()
            if watch_update and left == 1:
                watch_update()
        self._ended = time.perf_counter()
        return Step(
            loss=losses[0] if count == 1 else torch.stack(losses).float().mean(),
            steps=steps,
            samples=samples,
            tokens=tokens or None,
            micro_batches=steps * count,
            loader_wait_seconds=feed.waited - waited,
            skipped=skipped,
            watching_seconds=watching_seconds,
        )

    def begin(self, batch: Any) -> Callable[[], bool]:
        """Make what applies the gradients, from the first batch; return what ends an optimizer step."""
        self.update = self.make_update(self.make_optimizers(batch), self._scaler)
        self._counts_tokens = count_tokens(batch) > 0
        if self.own_step is None:
            return self.update
        self.own_step.begin(self.update, self._scaler)
        return self.own_step.end

    def _copy(self) -> Callable[[Any], Any]:
        """Return a function that copies a batch to the device, in the form that the plan wants."""
        pinned = bool(self.plan.loader_options.get("pin_memory"))
        device, transforms = self.plan.device, self.plan.batch_transforms

        def change(tensor: Tensor) -> Tensor:
            tensor = tensor.to(device, non_blocking=pinned)
            for transform in transforms:
                tensor = transform(tensor)
            return tensor

        def copy(batch: Any) -> Any:
            if stays and are_tensors(batch):
                return [*batch] if type(batch) is list else batch  # the user's code may empty its list
            return move(batch, change, device)

        stays = device == "cpu" and not transforms
        return copy

    def _forward_context(self) -> Callable[[], AbstractContextManager[Any]]:
        contexts = self.plan.forward_contexts
        if len(contexts) > 1:
            return lambda: _entered(contexts)
        return contexts[0] if contexts else lambda: _NO_CONTEXT


@contextmanager
def _entered(contexts: list[Callable[[], AbstractContextManager[Any]]]) -> Iterator[None]:
    with ExitStack() as stack:
        for make in contexts:
            stack.enter_context(make())
        yield
