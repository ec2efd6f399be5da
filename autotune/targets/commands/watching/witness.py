"""Hooks in torch that watch and report a training which was not written for autotune.

    DataLoader ─► a batch is there   backward ─► it was trained on   optimizer.step ─► a step ─► report ─► enough: leave

A step is a step of the optimizer that steps first; steps of others (in a GAN, for example) belong to it. If the program
calls `autotune.step`, each call is a step. A batch counts if a backward pass follows it: batches of an evaluation do
not count. Without a DataLoader, a batch is the input of a model's first forward pass.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

from autotune import telling
from autotune.errors import TargetError
from autotune.knobs.observed import Observed
from autotune.targets import switches, variables
from autotune.targets.commands.watching import unseen_parts
from autotune.targets.commands.watching.exits import ExitHooks
from autotune.targets.commands.watching.fetching import Fetched, Fetching
from autotune.targets.commands.watching.first_pass import FirstPass
from autotune.targets.commands.watching.loader_defaults import LoaderDefaults
from autotune.targets.commands.watching.losses import Losses
from autotune.targets.commands.watching.made_optimizers import MadeOptimizers
from autotune.targets.commands.watching.main_thread import Guest
from autotune.targets.commands.watching.pauses import Pauses
from autotune.targets.commands.watching.recomputed import Recomputed
from autotune.targets.commands.watching.tally import Tally
from autotune.targets.commands.watching.told_steps import MicroBatch, ToldSteps
from autotune.targets.commands.watching.trained_parameters import Trained, VainSteps, is_inner_step
from autotune.targets.own_loop import LoopReport

T = TypeVar("T")


class Witness:
    """The hooks of one training, and what they have seen."""

    def __init__(
        self, label: str, report: LoopReport, guest: Guest, *, loader_defaults: LoaderDefaults,
        transforms: Sequence[Callable[[Any], Any]], asked: int | None = None, is_told: bool = False,
    ) -> None:  # fmt: skip
        """Prepare the hooks, which `installed` installs.

        `transforms` change the model in place as soon as it has an optimizer. `asked` is the micro-batch that is asked
        for. `is_told`: the program reports its steps.
        """
        self.tally = Tally(report)
        self.trained = Trained()  # the parameters that the first step trained
        self.pauses = Pauses()
        self.batches = Fetching(report, self.pauses.end)
        self.defaults = loader_defaults
        self._told = ToldSteps(label, self.batches, is_told=is_told)
        self.optimizers = MadeOptimizers(label, guest, transforms)
        self._label, self._report, self._guest = label, report, guest
        self.exits, self._process = ExitHooks(label, guest), os.getpid()
        self._counted: Optimizer | None = None  # the optimizer whose steps count
        self._others: Counter[int] = Counter()  # steps of each optimizer since the last counted step
        self._is_in_backward = self._is_stepping = False
        self._unfetched: list[MicroBatch] = []  # micro-batches since the last step, without a DataLoader
        self._asked = asked
        self._first = FirstPass()  # shows the number of samples, without a DataLoader
        self._losses, self._recomputed, self._vain = Losses(), Recomputed(), VainSteps()
        self._has_stepped, self.updates = False, 0  # within a call of a gradient scaler; steps of any optimizer
        self._settings: dict[str, Any] = {}  # of the process and the optimizer that counts, as `Observed` has them

    def observed(self) -> Observed:
        """Return the settings that the hooks saw so far."""
        if not self.tally.steps:
            return Observed()
        return Observed(
            micro_batch=self.tally.micro_batch,
            micro_batches=self.tally.micro_batches,
            guessed_from=self._first.guessed_from if self.batches.data is None and not self._told.has_samples else None,
            workers=self.batches.workers,
            **self.batches.options,
            precisions=frozenset(self._losses.precisions | self.trained.precisions),
            recomputes=self._recomputed.seen,
            channels_last=self.trained.channels_last,
            channels_last_inputs=self._first.channels_last,
            **self._settings,
        )

    def begin(self) -> None:
        """Start the clock, in the program's thread, before it runs."""
        self.batches.thread = self.pauses.thread = threading.current_thread()
        self.tally.begin()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install the hooks in torch until the end."""
        replacements: list[tuple[Any, str, Callable[[Any], Any]]] = [
            *self.batches.replacements,
            *self.pauses.replacements,
            (DataLoader, "__init__", self.defaults.making),
            (torch.autograd, "backward", self._backward),
            (torch.amp.GradScaler, "step", self._maybe_stepping),
            *self._losses.replacements,
            *self._recomputed.replacements,
            *self.optimizers.replacements,
            (telling, "listener", lambda before: self._tell),
            *self.exits.replacements,
        ]
        with self.exits.heard(), ExitStack() as stack:
            for owner, name, around in replacements:
                original = getattr(owner, name)
                stack.callback(setattr, owner, name, original)
                setattr(owner, name, around(original))
            self._first_forward = register_module_forward_pre_hook(self._forward)
            stack.callback(self._first_forward.remove)
            stack.callback(register_optimizer_step_pre_hook(self._stepping).remove)
            stack.callback(register_optimizer_step_post_hook(self._stepped).remove)
            yield

    @property
    def _is_elsewhere(self) -> bool:
        """Whether this call is not watched: in another process (a loader worker has the hooks, too), or too late."""
        return self._guest.is_over or os.getpid() != self._process

    def _forward(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Note the inputs of the first model that learns: without a loader only they show the size of the batch."""
        if self._is_elsewhere or self.batches.is_busy or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return
        self._first_forward.remove()
        self.tally.begin()  # imports, data and an evaluation before it are no part of a step
        named = sys._getframe(1).f_locals.get("kwargs")
        self._first = FirstPass.of(module, [*inputs, named if isinstance(named, dict) else {}], self._asked)

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def backward(tensors: Any, *arguments: Any, **named: Any) -> Any:
            if self._is_elsewhere or self._is_in_backward:  # checkpointing runs backward passes inside a backward pass
                return original(tensors, *arguments, **named)
            self._is_in_backward = True
            try:
                result = original(tensors, *arguments, **named)
            finally:
                self._is_in_backward = False
            began = time.perf_counter()
            self._trained_on(tensors)
            self._report.watched(time.perf_counter() - began + self.batches.watching_seconds)
            self.batches.watching_seconds = 0.0
            return result

        return backward

    def _trained_on(self, tensors: Any) -> None:
        if not self.tally.backwards:
            self.early(variables.check)
        if not self.tally.steps:
            self.tally.add_loss(self._losses.of(tensors))
        self.pauses.cancel()
        self.tally.backward()
        is_late = self.tally.backwards > unseen_parts.MOST_BACKWARDS_WITHOUT_OPTIMIZER
        if is_late and not (self.optimizers.are_made or self._told.are_awaited):
            self._guest.leave(TargetError(unseen_parts.BY_HAND.format(self._label)))
        if (fetched := self.batches.take()) is not None:
            self._count(fetched, self._losses.of(tensors))
        elif not self.batches.has_fetched:
            self._hold(self._losses.of(tensors))

    def _hold(self, loss: Tensor) -> None:
        """Keep a batch that no loader gave until its step is known; LBFGS uses it many times in one step."""
        fetched = Fetched(samples=self._first.samples or 0, tokens=0, seconds=0.0)
        if self._told.are_awaited:
            self._told.hold(fetched, loss)
        elif not (self._is_stepping and self._unfetched):
            self._unfetched.append((fetched, loss))
        self._report.alive()

    def _count(self, fetched: Fetched, loss: Tensor) -> None:
        if self._told.are_awaited:
            self._report.alive()
            self._told.hold(fetched, loss)
        else:
            self.tally.add(fetched, loss)

    def _stepping(self, optimizer: Optimizer, *_: Any) -> None:
        """Note that a step begins; before the first, find the parameters that it will change."""
        if self._is_elsewhere:
            self.exits.trains()
            return
        self._is_stepping = True
        if not self.trained.parameters:
            self.early(self.exits.refuse_restarts)
            self.trained = Trained.of(optimizer)
            self.pauses.parameters = self.trained.parameters

    def _stepped(self, optimizer: Optimizer, *_: Any) -> None:
        if self._is_elsewhere or is_inner_step(optimizer):
            return
        self._is_stepping = False
        if self._vain.has(optimizer, self.tally.backwards_of_step):
            self.batches.take()  # a batch that the program skipped
            return
        self.updates += 1
        if self.tally.steps < 2:  # an inspection waits for a second step, not for more
            self.optimizers.note_step(optimizer)
        self._others[id(optimizer)] += 1
        if self._counted is None or self._others[id(optimizer)] > unseen_parts.MOST_OTHER_STEPS:
            self._counted = optimizer
        if optimizer is not self._counted:
            self._unfetched.clear()
            return
        self._others.clear()
        self._has_stepped = True
        self._end_step(skipped=False)

    def _maybe_stepping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def step(scaler: Any, optimizer: Any, *arguments: Any, **named: Any) -> Any:
            self._has_stepped = False
            result = original(scaler, optimizer, *arguments, **named)
            if not self._has_stepped and self._counted in (None, optimizer):
                self._counted, self.updates = optimizer, self.updates + 1
                self._end_step(skipped=True)
            return result

        return step

    def _tell(self, loss: Any, samples: Any) -> None:
        if self._is_elsewhere:
            return
        began = time.perf_counter()
        if not self.tally.steps:
            self.early(variables.check)
            if not self.trained.parameters and (model := self._first.model()) is not None:
                self.trained = Trained.among(model.parameters())
                self.optimizers.note(self.trained.parameters)
            self.pauses.parameters = self.trained.parameters
        micro_batches = self.early(lambda: self._told.end(loss, samples))
        self.tally.forget()
        for fetched, share in micro_batches:
            self.tally.add(fetched, share)
        if not self.tally.steps and loss is not None:
            self.tally.set_loss([share for _, share in micro_batches])
        skipped, self._told.skipped = self._told.skipped, False
        self._report.watched(time.perf_counter() - began)
        self._finish(skipped=skipped)

    def _end_step(self, *, skipped: bool) -> None:
        while self._unfetched:
            self._count(*self._unfetched.pop(0))
        if self._told.are_awaited:
            self._told.stepped(skipped=skipped)
            self.batches.step()
            self.tally.forget()
            return
        if not self.tally.of_step:  # no new batch: a part of one fetched before, or no backward pass
            self.early(variables.check)
            samples = self.tally.last if self.tally.last is not None else self._first.samples or 0
            loss = torch.full((), float("nan"))
            for _ in range(max(1, self.tally.backwards_of_step)):
                self._count(Fetched(samples=samples, tokens=0, seconds=0.0), loss)
        self._finish(skipped=skipped)

    def _finish(self, *, skipped: bool) -> None:
        if not self.tally.steps:
            self._settings = {"threads": torch.get_num_threads(), **switches.standing(filter(None, [self._counted]))}
        self.tally.step()
        self.batches.step()
        if not self.tally.last:
            self._guest.leave(TargetError(unseen_parts.NO_BATCH.format(self._label)))
        self._report.paused(self.pauses.take())
        if not self._report.step(skipped=skipped):
            self._guest.finish()

    def early(self, check: Callable[[], T]) -> T:
        """Return the result of a check; an error ends the training without reaching the program."""
        try:
            return check()
        except Exception as error:
            self._guest.leave(error)
