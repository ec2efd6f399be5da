"""The training loop of a probe: the plain one that everybody writes, with every place where a knob may touch it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from autotune.knobs.base import Plan
from autotune.targets.base import Command, Step, Watch
from autotune.targets.batches import count_tokens, move
from autotune.targets.data import Source
from autotune.targets.feed import Feed
from autotune.targets.losses import Loss, checked


@dataclass(kw_only=True)
class Training:
    """One training run on the device: a `Session`."""

    plan: Plan
    model: torch.nn.Module
    source: Source
    validation: Source | None
    loss: Loss
    make_optimizer: Callable[[Any], Optimizer]  # from the first batch, whose form decides the default
    count_samples: Callable[[Any], int]
    optimizer: Optimizer | None = None  # made when the first batch is there

    def train(self, watch: Watch) -> None:
        """Take optimizer steps until the watch says `STOP`; raises what the user's code raises."""
        feed = Feed(self.source, watch)
        steps = self._steps(feed)
        while (command := watch.step(next(steps))) is not Command.STOP:
            if command is Command.DRAIN:
                feed.drain(self._prefetched_batches())

    def validate(self, batches: int) -> int:
        """Evaluate up to `batches` batches as one would between epochs; returns how many there were."""
        if self.validation is None:
            return 0
        self.model.eval()
        done = 0
        with torch.no_grad():
            for batch, _ in zip(self.validation(), range(batches), strict=False):
                with self._forward_contexts():
                    checked(self.loss(self.model, self._on_device(batch)), training=False)
                done += 1
        self.model.train()
        return done

    def _steps(self, feed: Feed) -> Iterator[Step]:
        """Optimizer steps without end. Nothing here waits for an accelerator, except a gradient scaler's own check."""
        scaler = torch.amp.GradScaler(self.plan.device.partition(":")[0], enabled=self.plan.scale_loss)
        count = self.plan.accumulation_steps
        update: _Update | None = None
        while True:
            losses: list[Tensor] = []
            tokens: list[int] = []
            samples = 0
            for _ in range(count):
                batch = feed.next()
                samples += self.count_samples(batch)
                tokens += count_tokens(batch)
                update = update or _Update(self._optimizer_for(batch), scaler)
                batch = self._on_device(batch)
                with self._forward_contexts():
                    loss = checked(self.loss(self.model, batch), training=True)
                share: Any = scaler.scale(loss / count)  # summed up they give the gradient of one large batch
                share.backward()
                losses.append(loss.detach().float())
            assert update is not None  # there is at least one micro-batch
            yield Step(
                skipped=not update(),
                loss=torch.stack(losses).mean(),
                samples=samples,
                tokens=sum(tokens) if tokens else None,
                micro_batches=count,
                loader_wait_seconds=feed.waited_seconds(),
            )

    def _optimizer_for(self, batch: Any) -> Optimizer:
        if self.optimizer is None:
            self.optimizer = self.make_optimizer(batch)
        return self.optimizer

    def _on_device(self, batch: Any) -> Any:
        pinned = bool(self.plan.loader_options.get("pin_memory"))
        device = self.plan.device

        def change(tensor: Tensor) -> Tensor:
            tensor = tensor.to(device, non_blocking=pinned)
            for transform in self.plan.batch_transforms:
                tensor = transform(tensor)
            return tensor

        return move(batch, change, device)

    @contextmanager
    def _forward_contexts(self) -> Iterator[None]:
        with ExitStack() as stack:
            for make in self.plan.forward_contexts:
                stack.enter_context(make())
            yield

    def _prefetched_batches(self) -> int:
        """What the workers hold ready (measured: these free batches made a probe look up to 2.2 times too fast)."""
        options = self.plan.loader_options
        return int(options.get("num_workers") or 0) * int(options.get("prefetch_factor") or 2)


class _Update:
    """Applies the gradients, and knows whether the gradient scaler let it."""

    def __init__(self, optimizer: Optimizer, scaler: torch.amp.GradScaler) -> None:
        self._optimizer, self._scaler = optimizer, scaler
        self._stepped = False
        optimizer.register_step_post_hook(self._note)

    def __call__(self) -> bool:
        """One optimizer step; False if it was skipped because of gradients that are not finite."""
        self._stepped = False
        # A fused optimizer is stepped always and skips inside its kernel: only the scale tells, at the price of a wait.
        decides_itself = self._scaler.is_enabled() and getattr(self._optimizer, "_step_supports_amp_scaling", False)
        before = self._scaler.get_scale() if decides_itself else 0.0
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)
        return self._scaler.get_scale() >= before if decides_itself else self._stepped

    def _note(self, *_: Any) -> None:
        self._stepped = True
