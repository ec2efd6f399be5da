"""The time of a step by its parts: wrappers around what our loop calls, which mark where each part begins and ends.

    other ─► data ─► other ─► copy ─► forward ─► other ─► backward ─► optimizer ─► other
                                       └ in a step of the user's own: backward, optimizer ┘

All time between two marks belongs to the part that was going on, so that the parts add up to the step. The marks are
those of `child/clock.py`: on CUDA they are events, and nothing waits for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import torch

from autotune.child.clock import clock_for
from autotune.profile.records import Part
from autotune.targets.loop import Training
from autotune.targets.own_step import OwnStep, StepOptimizer
from autotune.targets.update import Update


class Stopwatch:
    """Knows the current part of a step, and, between `start` and `stop`, the seconds of each part."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._open: list[Part] = ["other"]
        self.listeners: list[Callable[[], None]] = []  # told of each change of part
        self._is_on = self._is_paused = False
        self._clock = clock_for(device)
        self._marked = list[Part | None]()  # the part that each mark began; None: no part of a step
        self._ends = list[int]()  # the marks between steps
        self._left_out = set[int]()  # steps that do not count, by number
        self._thread = 0  # that takes the steps

    @property
    def is_here(self) -> bool:
        """Whether this thread takes the steps: work of other threads is no part of a step."""
        return threading.get_ident() == self._thread

    @property
    def current(self) -> Part:
        """The current part of the step."""
        return self._open[-1]

    def start(self) -> None:
        """Begin to measure; to be called between two steps."""
        self._clock, self._marked, self._ends, self._left_out = clock_for(self._device), [], [], set()
        self._is_on = True
        self.step()

    def step(self, *, counts: bool = True) -> None:
        """Note that one optimizer step has ended; without `counts` its time is dropped, because it had other work."""
        self._thread = threading.get_ident()
        if not counts:
            self._left_out.add(len(self._ends) - 1)
        self._ends.append(len(self._marked))
        self._changed()

    def stop(self) -> tuple[dict[Part, float], tuple[float, ...]]:
        """Return the seconds of each part of all steps together, and those of each step; waits for the device."""
        self._is_on = False
        seconds, intervals, steps = dict[Part, float](), self._clock.intervals(), list[float]()
        for step, (first, last) in enumerate(pairwise(self._ends)):
            if step not in self._left_out:
                in_step = 0.0
                for part, interval in zip(self._marked[first:last], intervals[first:last], strict=True):
                    if part is not None:
                        seconds[part] = seconds.get(part, 0.0) + interval
                        in_step += interval
                steps.append(in_step)
        return seconds, tuple(steps)

    def during(self, part: Part, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does `work` and counts its time for `part`."""

        def timed(*arguments: Any, **options: Any) -> Any:
            self.begin(part)
            try:
                return work(*arguments, **options)
            finally:
                self.end()

        return timed

    def begin(self, part: Part) -> None:
        """Begin a part inside the current one."""
        self._open.append(part)
        self._changed()

    def end(self) -> None:
        """End the part that began last."""
        self._open.pop()
        self._changed()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Measure nothing until the end: the time is part of no step."""
        self._is_paused = True
        self._changed()
        try:
            yield
        finally:
            self._is_paused = False
            self._changed()

    def _changed(self) -> None:
        if self._is_on:
            self._clock.mark()
            self._marked.append(None if self._is_paused else self._open[-1])
        for tell in self.listeners:
            tell()


class _Epoch:
    """An epoch whose batches are waited for."""

    def __init__(self, batches: Iterator[Any], stopwatch: Stopwatch) -> None:
        self._batches = batches
        self._next = stopwatch.during("data", batches.__next__)

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> Any:
        return self._next()


class _OwnStep:
    """The user's own step, whose time is that of the forward pass where it is neither of the others."""

    def __init__(self, step: OwnStep, stopwatch: Stopwatch) -> None:
        self._step, self._call = step, stopwatch.during("forward", step)

    def __call__(self, batch: Any) -> Any:
        return self._call(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)


@contextmanager
def parts_told_apart(training: Training, stopwatch: Stopwatch) -> Iterator[None]:
    """Tell `stopwatch` of the parts of the steps of `training`, which has not begun."""
    during, source = stopwatch.during, training.source
    training.source = lambda: _Epoch(during("data", source)(), stopwatch)
    training.to_device = during("copy", training.to_device)
    training.parallel.loss = during("forward", training.parallel.loss)
    if training.own_step is not None:
        training.own_step = _OwnStep(training.own_step, stopwatch)  # type: ignore[assignment]  # stands in for it
    with ExitStack() as stack:
        for owner, name, part in _OTHERS:
            stack.enter_context(replaced(owner, name, during(part, getattr(owner, name))))
        yield


_OTHERS: tuple[tuple[Any, str, Part], ...] = (
    (torch.autograd, "backward", "backward"),  # `Tensor.backward` calls it, too
    (torch.autograd, "grad", "backward"),
    (Update, "__call__", "optimizer"),
    (Update, "take", "optimizer"),
    (StepOptimizer, "zero_grad", "optimizer"),
)


def freeing_seconds(make: Callable[[], Any]) -> float:
    """Return the seconds that it takes to free what `make` returns: the pages of a large one go back to the system."""
    held, began = [make()], time.thread_time()  # others that have its core meanwhile are no part of it
    held.clear()
    return time.thread_time() - began


@contextmanager
def replaced(owner: Any, name: str, stand_in: Any) -> Iterator[None]:
    """Put `stand_in` in the place of an attribute, which a class may have inherited."""
    is_own = name in vars(owner)
    before = vars(owner).get(name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


@contextmanager
def told_of_results(owner: Any, name: str, tell: Callable[[Any], None]) -> Iterator[None]:
    """Tell of what each call of `owner`'s attribute gives, until the `with` block ends."""
    call = getattr(owner, name)

    def telling(*arguments: Any) -> Any:
        result = call(*arguments)
        tell(result)
        return result

    with replaced(owner, name, telling):
        yield
