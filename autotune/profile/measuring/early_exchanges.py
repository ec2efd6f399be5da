"""Finds gradients that ranks exchange in every micro-batch, where the optimizer steps after several of them.

    forward, backward, exchange ─► forward, backward, exchange ─► optimizer.step()
                        └ early: more gradients are added before anybody steps with these

`no_sync()` around the forward and backward pass leaves the exchange to the last micro-batch.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from autotune.profile.measuring.stopwatch import Stopwatch, replaced
from autotune.profile.measuring.user_lines import UserLine, calling_line, slow_line
from autotune.profile.records import SlowLine
from autotune.targets.commands.distributed import world_size

_OPTIMIZERS = register_optimizer_step_pre_hook.__code__.co_filename  # of torch's code around every step


class _Exchange(NamedTuple):
    """One backward pass that exchanged gradients: its line, and the seconds of waiting."""

    line: UserLine | None
    seconds: float  # that it waited for other ranks


class EarlyExchanges:
    """Watches models in `DistributedDataParallel`, between two steps of an optimizer."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch
        self._asked: list[DistributedDataParallel] = []  # whose next backward pass exchanges
        self._latest: dict[int, _Exchange] = {}  # since an optimizer stepped, by identity of the model
        self._early = defaultdict[UserLine, list[float]](list)  # seconds of each, by line

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch until the end; with one rank do nothing."""
        if world_size() == 1:
            yield
            return
        forward: Any = DistributedDataParallel.forward
        backward = torch.autograd.backward

        def going_forward(model: DistributedDataParallel, *arguments: Any, **options: Any) -> Any:
            self._go_forward(model)
            return forward(model, *arguments, **options)

        def going_back(*arguments: Any, **options: Any) -> None:
            line = calling_line(sys._getframe(1))
            waited = _Waiting(self._stopwatch)
            self._stopwatch.listeners.append(waited.tell)
            try:
                backward(*arguments, **options)
            finally:
                self._stopwatch.listeners.remove(waited.tell)
            for model in () if _is_in_step() else self._asked:
                self._latest[id(model)] = _Exchange(line, waited.seconds / len(self._asked))
            self._asked.clear()

        with ExitStack() as stack:
            stack.enter_context(replaced(DistributedDataParallel, "forward", going_forward))
            stack.enter_context(replaced(torch.autograd, "backward", going_back))
            stack.callback(register_optimizer_step_pre_hook(lambda *_: self._latest.clear()).remove)
            yield

    def result(self, steps: int) -> list[SlowLine]:
        """Return the lines whose exchanges were early, in so many steps."""
        return [
            slow_line("early exchange", line, "", len(seconds) / steps, sum(seconds) / steps)
            for line, seconds in self._early.items()
        ]

    def _go_forward(self, model: DistributedDataParallel) -> None:
        if not torch.is_grad_enabled():
            return
        latest = self._latest.pop(id(model), None)
        is_adding = any(one.grad is not None for one in model.module.parameters())
        if latest is not None and latest.line is not None and is_adding:
            self._early[latest.line].append(latest.seconds)
        if model.require_backward_grad_sync and not any(model is one for one in self._asked):
            self._asked.append(model)


def _is_in_step() -> bool:
    """Return whether an optimizer calls, in the closure of its step: then no gradients are added afterwards.

    A hook that waits for the step's end is removed while torch goes through its hooks, where a probe ends in another.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != _OPTIMIZERS:
        frame = frame.f_back
    return frame is not None


class _Waiting:
    """The seconds of the part `communication`, measured by a stopwatch."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch, self.seconds = stopwatch, 0.0
        self._since: float | None = None  # when it began; None: another part goes on

    def tell(self) -> None:
        """Note that the current part has changed."""
        now = time.perf_counter()
        if self._since is not None:
            self.seconds += now - self._since
        self._since = now if self._stopwatch.current == "communication" else None
