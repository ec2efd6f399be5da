"""The parts of a step of the user's own loop, as far as they can be observed from outside.

    other ─► data ─► other ─► forward ─────────────► backward ─► optimizer ─► other
              │                └ from the first call of a module to the backward pass: loss and metrics, too
              └ a DataLoader that is waited for

Copying to the device is part of `other`. Modules that begin a forward pass are found while warming up, by a hook of all
modules, and have hooks of their own from then on: what they call takes no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loading

from autotune.profile.measuring.stopwatch import Stopwatch, replaced, told_of_results
from autotune.profile.records import Part
from autotune.targets.live_modules import hook_calls

_AROUND: tuple[tuple[Any, str, Part], ...] = (
    (loading._BaseDataLoaderIter, "__next__", "data"),
    (DataLoader, "__iter__", "data"),
    (torch.autograd, "backward", "backward"),  # `Tensor.backward` calls it, too
    (torch.autograd, "grad", "backward"),
    (Optimizer, "zero_grad", "optimizer"),
)


class OwnParts:
    """Tells a stopwatch when data, forward, backward and optimizer begin and end in a loop of the user's own."""

    def __init__(self, stopwatch: Stopwatch, begins: Callable[[], None]) -> None:
        """`begins` is called when the first forward pass begins."""
        self._stopwatch, self._begins = stopwatch, begins
        self._first = dict[int, torch.nn.Module]()  # modules that began a forward pass, by identity
        self._without_gradients: torch.nn.Module | None = None  # whose forward pass goes on
        self._hooks = ExitStack()
        self.optimizers = list[Optimizer]()  # that took a step, in the order of their first

    @contextmanager
    def told_apart(self) -> Iterator[None]:
        """Put hooks where parts begin and end, until the `with` block ends; enter it before the loop begins."""
        with ExitStack() as stack, self._hooks:
            self._hooks.callback(register_module_forward_pre_hook(self._called).remove)
            self._hooks.callback(register_module_forward_hook(self._returned, always_call=True).remove)
            for owner, name, part in _AROUND:
                stack.enter_context(replaced(owner, name, self._around(getattr(owner, name), part)))
            # Before those of a witness, which are told last that a step is over.
            stack.callback(register_optimizer_step_pre_hook(self._begin_update).remove)
            stack.callback(register_optimizer_step_post_hook(self._end_update).remove)
            yield

    def found(self) -> None:
        """Take the hook off all modules but those that began a forward pass so far: a step calls no others first."""
        self._hooks.close()
        for module in self._first.values():
            self._hooks.callback(hook_calls(module, self._called, self._returned))

    def end_forward(self) -> None:
        """End the forward pass on the stopwatch, if one goes on."""
        if self._stopwatch.current == "forward":
            self._stopwatch.end()

    def _called(self, module: torch.nn.Module, *_: Any) -> None:
        """A forward pass begins: within the optimizer's step where that is given a closure.

        Without gradients it is that of a model with weights, such as a teacher, and ends when that returns. Metrics are
        modules, too.
        """
        if torch.compiler.is_compiling() or not (torch.is_grad_enabled() or any(True for _ in module.parameters())):
            return
        if self._stopwatch.current in ("other", "optimizer"):
            if not self._first:
                self._begins()
            self._first[id(module)] = module
            self._without_gradients = None if torch.is_grad_enabled() else module
            self._stopwatch.begin("forward")

    def _returned(self, module: torch.nn.Module, *_: Any) -> None:
        if self._without_gradients is module:
            self._without_gradients = None
            self.end_forward()

    def told_of_batches(self, tell: Callable[[Any], None]) -> AbstractContextManager[None]:
        """Tell of each batch that a DataLoader gives, until the context ends."""
        return told_of_results(loading._BaseDataLoaderIter, "__next__", tell)

    def _around(self, call: Any, part: Part) -> Any:
        timed = self._stopwatch.during(part, call)

        def around(*arguments: Any, **options: Any) -> Any:
            if self._stopwatch.current == part:  # of another optimizer, or a loader of loaders
                return call(*arguments, **options)
            self.end_forward()
            return timed(*arguments, **options)

        return around

    def _begin_update(self, optimizer: Optimizer, *_: Any) -> None:
        if not any(one is optimizer for one in self.optimizers):
            self.optimizers.append(optimizer)
        self.end_forward()
        self._stopwatch.begin("optimizer")

    def _end_update(self, *_: Any) -> None:
        self.end_forward()
        self._stopwatch.end()
