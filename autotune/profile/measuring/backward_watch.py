"""The backward passes of a user's own `step`: gradients that are forgotten, and graphs that grow from step to step."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from autotune.profile.measuring.stopwatch import replaced
from autotune.profile.measuring.user_lines import UserLine, calling_line, slow_line
from autotune.profile.records import SlowLine
from autotune.targets.own_step import StepOptimizer

MOST_NODES = 20_000  # of one graph that are counted, of some microseconds each
FEWEST_GROWING_STEPS = 6  # each with more nodes than the one before


class BackwardWatch:
    """Watches `backward`, `step` and `zero_grad` of the optimizers that a user's step gets."""

    def __init__(self, optimizers: Callable[[], Iterable[Optimizer]]) -> None:
        self._optimizers = optimizers
        self._fresh: dict[int, set[UserLine]] = {}  # lines whose backward pass, of another optimizer, gave it gradients
        self._nodes: dict[UserLine, list[int]] = {}
        self._unused = Counter[UserLine]()
        self._owners: dict[UserLine, str] = {}
        self._backward, self._step, self._zero = StepOptimizer.backward, StepOptimizer.step, StepOptimizer.zero_grad
        self.limited: UserLine | None = None  # computes the gradients of its own optimizer only

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Follow gradients and graphs through each `backward`, `step` and `zero_grad`, until the `with` block ends."""
        self._backward, self._step, self._zero = StepOptimizer.backward, StepOptimizer.step, StepOptimizer.zero_grad

        def backward(optimizer: StepOptimizer, loss: Tensor, **options: Any) -> None:
            self._go_back(optimizer, loss, options, calling_line(sys._getframe(1)))

        def step(optimizer: StepOptimizer) -> None:
            self._fresh.pop(_key(optimizer), None)
            self._step(optimizer)

        def zero_grad(optimizer: StepOptimizer, *arguments: Any, **options: Any) -> None:
            self._unused.update(self._fresh.pop(_key(optimizer), ()))
            self._zero(optimizer, *arguments, **options)

        with ExitStack() as stack:
            for name, stand_in in (("backward", backward), ("step", step), ("zero_grad", zero_grad)):
                stack.enter_context(replaced(StepOptimizer, name, stand_in))
            yield

    def unused(self, steps: int) -> list[tuple[UserLine, str]]:
        """Return lines whose backward pass computes, in every step, what an optimizer forgets; and that optimizer.

        An optimizer may forget in the next step, which nobody watched after the last.
        """
        return [(line, self._owners[line]) for line, count in self._unused.items() if count >= max(1, steps - 1)]

    def growing(self, steps_before: float, backward_seconds: float) -> SlowLine | None:
        """Return the line whose graphs grow; None: there is none.

        `backward_seconds` are those of backward passes in a step, `steps_before` steps before the first watched one:
        the line's seconds are the share that went to graphs of earlier steps.
        """
        for line, nodes in self._nodes.items():
            more = (nodes[-1] - nodes[0]) / max(1, len(nodes) - 1)
            if len(nodes) < FEWEST_GROWING_STEPS or not all(before < after for before, after in pairwise(nodes)):
                continue
            then = max(more, nodes[0] - more * steps_before)
            return slow_line("graph", line, "", more, backward_seconds * (1 - more / then))
        return None

    def _go_back(self, optimizer: StepOptimizer, loss: Tensor, options: dict[str, Any], line: UserLine | None) -> None:
        if line is None:
            self._backward(optimizer, loss, **options)
            return
        own = {id(one): one for one in _parameters(optimizer.param_groups)}
        if line == self.limited:
            options = {"inputs": [one for one in own.values() if one.requires_grad], **options}
        elif isinstance(loss, Tensor) and "inputs" not in options:
            self._nodes.setdefault(line, []).append(_count_nodes(loss))
        others = [one for one in self._optimizers() if one.param_groups is not optimizer.param_groups]
        before = {id(one): _version(one) for other in others for one in _parameters(other.param_groups)}
        self._backward(optimizer, loss, **options)
        for other in others:
            theirs = [one for one in _parameters(other.param_groups) if id(one) not in own]
            if any(one.grad is not None and before[id(one)] != _version(one) for one in theirs):
                self._fresh.setdefault(id(other.param_groups), set()).add(line)
                self._owners[line] = f"{len(theirs)} parameters of another {type(other).__name__}"


def _key(optimizer: StepOptimizer) -> int:
    return id(optimizer.param_groups)


def _parameters(groups: Iterable[dict[str, Any]]) -> list[Tensor]:
    return [one for group in groups for one in group["params"]]


def _version(parameter: Tensor) -> tuple[int, int] | None:
    gradient = parameter.grad
    return None if gradient is None else (id(gradient), gradient._version)


def _count_nodes(loss: Tensor) -> int:
    """Return the number of operations in the backward pass of `loss`, at most `MOST_NODES`."""
    seen, ahead = set[Any](), [loss.grad_fn]
    while ahead and len(seen) < MOST_NODES:
        node = ahead.pop()
        if node is not None and node not in seen:
            seen.add(node)
            ahead += [one for one, _ in node.next_functions]
    return len(seen)
