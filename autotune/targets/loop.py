"""The training loop of a probe: the plain one that everybody writes, with every place where a knob may touch it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from autotune.knobs.base import Plan
from autotune.targets.base import Command, Step, Watch
from autotune.targets.batches import Shapes, count_tokens, move
from autotune.targets.data import Source
from autotune.targets.feed import Feed
from autotune.targets.losses import Loss, checked
from autotune.targets.rehearsal import without_learning
from autotune.targets.worst import Same, Worst

_NO_CONTEXT = nullcontext()


@dataclass(kw_only=True)
class Training:
    """One training run on the device: a `Session`."""

    plan: Plan
    model: torch.nn.Module
    source: Source
    validation: Source | None
    worst: Worst
    loss: Loss
    make_optimizer: Callable[[Any], Optimizer]  # from the first batch, whose form decides the default
    count_samples: Callable[[Any], int]
    loads: bool = True  # whether there is a loader; a synthetic batch has none
    optimizer: Optimizer | None = None  # made when the first batch is there

    def __post_init__(self) -> None:
        self._scaler = torch.amp.GradScaler(self.plan.device.partition(":")[0], enabled=self.plan.scale_loss)
        self._shapes = Shapes()
        self._watch: Watch | None = None  # of `train`; hears of micro-batches after that, too
        self._epoch: Any = None  # where training stopped; kept, so that workers live until their memory was read

    def train(self, watch: Watch) -> None:
        """Do what the watch says until it says `STOP`; raises what the user's code raises."""
        self._watch = watch
        feed = Feed(self.source, watch)
        steps = self._steps(feed, self.count_samples)
        command = Command.CONTINUE
        while command is not Command.STOP:
            if command is Command.LOAD:
                command = watch.loaded(self.count_samples(feed.unused()))
            elif command is Command.REPEAT and self.optimizer:
                with feed.repeating(), without_learning(self.optimizer, self.plan.device):
                    while command is Command.REPEAT:
                        command = watch.step(next(steps))
            else:
                command = watch.step(next(steps))
        self._epoch = feed.epoch

    def loss_scale(self) -> float | None:
        """The gradient scaler's present factor; None without one."""
        return self._scaler.get_scale() if self._scaler.is_enabled() else None

    @property
    def shapes_vary(self) -> bool:
        """Whether batches so far differed in more than their number of samples."""
        return self._shapes.vary

    def train_worst(self) -> int:
        """Take one optimizer step on the worst batch that can be had; returns its micro-batches (0: none known)."""
        batch = self.worst(self._shapes.vary)
        if batch is None:
            return 0
        asked_for = int(self.plan.loader_options["batch_size"])  # not counted: it need not look like the loader's
        return next(self._steps(Same(batch), lambda batch: asked_for)).micro_batches

    def validate(self, batches: int) -> int:
        """Evaluate up to `batches` batches as one would between epochs; returns how many there were."""
        if self.validation is None:
            return 0
        self.model.eval()
        done, on_device = 0, self._copy()
        with torch.no_grad():
            for batch, _ in zip(self.validation(), range(batches), strict=False):
                with self._forward_context():
                    checked(self.loss(self.model, on_device(batch)), training=False)
                done += 1
        self.model.train()
        return done

    def _steps(self, feed: Feed | Same, count_samples: Callable[[Any], int]) -> Iterator[Step]:
        """Optimizer steps without end. Nothing here waits for an accelerator, except a gradient scaler's own check.

        What a plain loop would not do costs time that is not the user's: it is little, and it is measured.
        """
        scaler, count, on_device = self._scaler, self.plan.accumulation_steps, self._copy()
        update: _Update | None = None
        own_seconds = 0.0
        while True:
            losses: list[Tensor] = []
            tokens: list[int] = []
            samples, waited = 0, 0.0
            for _ in range(count):
                batch = feed.next()
                waited += feed.arrived - feed.asked
                held = count_samples(batch)
                self._shapes.note(batch, held, feed.arrived)
                samples += held
                tokens += count_tokens(batch)
                update = update or _Update(self._optimizer_for(batch), scaler)
                own_seconds += time.perf_counter() - feed.arrived
                batch = on_device(batch)
                with self._forward_context():
                    loss = checked(self.loss(self.model, batch), training=True)
                # Summed up they give the gradient of one large batch. A division by 1 would cost 20 us (measured).
                share: Any = scaler.scale(loss if count == 1 else loss / count)
                share.backward()
                losses.append(loss.detach())
                if count > 1 and self._watch:
                    self._watch.micro_batch()
            assert update is not None  # there is at least one micro-batch
            skipped, ended = not update(), time.perf_counter()
            yield Step(
                skipped=skipped,
                loss=losses[0] if count == 1 else torch.stack(losses).float().mean(),
                samples=samples,
                tokens=sum(tokens) if tokens else None,
                micro_batches=count,
                loader_wait_seconds=waited,
                own_seconds=own_seconds,
            )
            own_seconds = time.perf_counter() - ended  # the watch has looked at this step on the time of the next

    def _optimizer_for(self, batch: Any) -> Optimizer:
        if self.optimizer is None:
            self.optimizer = self.make_optimizer(batch)
        return self.optimizer

    def _copy(self) -> Callable[[Any], Any]:
        """Brings a batch to the device, in the form that the plan wants."""
        pinned = bool(self.plan.loader_options.get("pin_memory"))
        device = self.plan.device

        def change(tensor: Tensor) -> Tensor:
            tensor = tensor.to(device, non_blocking=pinned)
            for transform in self.plan.batch_transforms:
                tensor = transform(tensor)
            return tensor

        return lambda batch: move(batch, change, device)

    def _forward_context(self) -> AbstractContextManager[Any]:
        contexts = self.plan.forward_contexts
        if len(contexts) > 1:
            return _entered(contexts)
        return contexts[0]() if contexts else _NO_CONTEXT


@contextmanager
def _entered(contexts: list[Callable[[], AbstractContextManager[Any]]]) -> Iterator[None]:
    with ExitStack() as stack:
        for make in contexts:
            stack.enter_context(make())
        yield


class _Update:
    """Applies the gradients, and knows whether the gradient scaler let it."""

    def __init__(self, optimizer: Optimizer, scaler: torch.amp.GradScaler) -> None:
        self._optimizer, self._scaler = optimizer, scaler
        self._stepped = False
        if scaler.is_enabled():  # without one no step is skipped, and a hook is paid by every step
            optimizer.register_step_post_hook(self._note)

    def __call__(self) -> bool:
        """One optimizer step; False if it was skipped because of gradients that are not finite."""
        if not self._scaler.is_enabled():
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            return True
        self._stepped = False
        # A fused optimizer is stepped always and skips inside its kernel: only the scale tells, at the price of a wait.
        decides_itself = getattr(self._optimizer, "_step_supports_amp_scaling", False)
        before = self._scaler.get_scale() if decides_itself else 0.0
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)
        return self._scaler.get_scale() >= before if decides_itself else self._stepped

    def _note(self, *_: Any) -> None:
        self._stepped = True
