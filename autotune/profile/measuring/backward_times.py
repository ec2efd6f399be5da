"""The time of the backward pass by line of the forward pass, measured by hooks on the nodes of its graph.

    forward     first() ─► second() ─► third()      what an operation makes has a node, which gets a hook
    backward    third ──► second ──► first ──►      the time from one hook to the next belongs to the line of the former

Of the nodes whose gradients are there, the engine of a CPU takes the one that was made last
(`torch/csrc/autograd/engine.cpp`, `CompareNodeTaskTime`). So the nodes of one operation follow each other, with what
adds their gradients up and frees them. What checkpointing computes again counts for the operation that asks for it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor
from torch.autograd.graph import Node

from autotune.profile.measuring.stopwatch import Stopwatch
from autotune.profile.measuring.user_lines import UserLine

NOBODYS = None  # no line's, or made by no operation that was seen, such as a Function of the user's


class BackwardTimes:
    """Times the backward pass of the lines whose tensors it is given, on a CPU."""

    def __init__(self, stopwatch: Stopwatch, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = Counter[UserLine | None]()  # of all steps
        self.passes = 0
        self._stopwatch, self._clock = stopwatch, clock
        self._newest = -1  # number of the node that was made last
        self._now: UserLine | None = NOBODYS
        self._since: float | None = None  # None: in another part of a step

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Time backward passes until the `with` block ends; graphs that live longer keep their hooks."""
        self._stopwatch.listeners.append(self._part_changed)
        try:
            yield
        finally:
            self._stopwatch.listeners.remove(self._part_changed)
            self._since = None

    def follow(self, tensors: Iterable[Tensor], line: UserLine | None) -> None:
        """Count the gradients of those of `tensors` that were made since the last call for `line`."""
        for one in tensors:
            node = _node(one)
            if node is not None and (number := node._sequence_nr()) > self._newest:
                self._newest = number
                node.register_prehook(partial(self._begins, line))

    def _begins(self, line: UserLine | None, gradients: Any) -> None:
        if self._since is not None:
            self.seconds[self._now] += self._clock() - self._since  # type: ignore[assignment]  # a counter of seconds
            self._now, self._since = line, self._clock()

    def _part_changed(self) -> None:
        self._begins(NOBODYS, None)
        is_on = self._stopwatch.current == "backward"
        self.passes += is_on
        self._since = self._clock() if is_on else None


def _node(tensor: Tensor) -> Node | None:
    try:
        return tensor.grad_fn if tensor.is_cpu else None
    except RuntimeError:  # a view whose base was changed in place, which may still be read without gradients
        return None
