"""The operations of a loop, timed alone on copies: as the loop calls them, and once on all that it goes through.

Watched, each meets caches that watching filled, and takes up to three times as long.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

from autotune.targets.peek import random_state_kept

MOST_ELEMENTS = 2**22  # of what is copied: 16 MiB of float32
LEAST_CALLS, MOST_CALLS = 2, 256  # that are timed
ROUNDS = 5


class Alone(NamedTuple):
    """What an operation takes alone."""

    seconds: float  # of one call, of processor time
    joined_share: float  # of the time of all calls, that one call on all their arguments takes, 0..1


class Sample(NamedTuple):
    """One of many calls of an operation, with copies of its arguments."""

    func: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    is_shared: tuple[bool, ...]  # by all calls, such as a parameter

    @property
    def elements(self) -> int:
        """The elements of all tensors among its arguments, without those of its options."""
        return elements_of(self.arguments)

    @classmethod
    def of(cls, func: Callable[..., Any], arguments: Any, options: Any) -> Sample | None:
        """Return a call that can be taken again; None: its arguments are too large to be copied, or cannot be.

        None also among ranks: it may be an exchange, which the others would not take again. None with a generator,
        whose state is the training's.
        """
        if distributed.is_available() and distributed.is_initialized():
            return None
        if any(isinstance(one, torch.Generator) for one in (*arguments, *options.values())):
            return None
        if elements_of([*arguments, *options.values()]) * LEAST_CALLS > MOST_ELEMENTS:
            return None
        is_shared = tuple(isinstance(one, nn.Parameter) for one in arguments)
        try:
            copied = {name: _copied(one) for name, one in options.items()}
            return cls(func, tuple(map(_copied, arguments)), copied, is_shared)
        except Exception:  # torch's own, or a subclass's: the training goes on
            return None

    def alone(self, calls: int) -> Alone | None:
        """Return what one of so many calls takes alone; None: it cannot be taken again."""
        calls = max(LEAST_CALLS, min(calls, MOST_CALLS, MOST_ELEMENTS // max(1, self.elements)))
        with torch.no_grad(), random_state_kept():
            try:
                size = elements_of([self.func(*self.arguments, **self.options)])
                seconds = self._seconds(self.arguments, calls) / calls
            except Exception:  # torch's own: it may need gradients
                return None
            together = min(calls, math.isqrt(MOST_ELEMENTS // max(1, size)))  # an outer product grows with its square
            for join in (torch.stack, torch.cat) if seconds and together >= LEAST_CALLS else ():
                try:
                    joined = self._joined(join, together)
                    if elements_of([self.func(*joined, **self.options)]) != together * size:
                        continue  # it computes something else
                    whole = self._seconds(joined, 1)
                except Exception:  # torch's own: shapes that do not fit
                    continue
                return Alone(seconds, min(1.0, whole / (together * seconds)))
        return Alone(seconds, 0.0)

    def _joined(self, join: Callable[[list[Tensor]], Tensor], calls: int) -> tuple[Any, ...]:
        return tuple(
            join([one] * calls) if isinstance(one, Tensor) and not is_shared and one.dim() else one
            for one, is_shared in zip(self.arguments, self.is_shared, strict=True)
        )

    def _seconds(self, arguments: tuple[Any, ...], calls: int) -> float:
        found = list[float]()
        for _ in range(ROUNDS):
            began = time.thread_time()
            for _ in range(calls):
                self.func(*arguments, **self.options)
            found.append(time.thread_time() - began)
        return median(found)


def elements_of(arguments: Any) -> int:
    """Return the elements of all tensors among arguments, also those in lists."""
    within = (one for one in arguments if type(one) in (list, tuple))
    return sum(_size(one) for one in arguments if isinstance(one, Tensor)) + sum(map(elements_of, within))


def _size(tensor: Tensor) -> int:
    try:
        return tensor.numel()
    except Exception:  # a subclass's: the training goes on
        return MOST_ELEMENTS


def _copied(one: Any) -> Any:
    if isinstance(one, Tensor):
        return one.detach().clone()
    return type(one)(map(_copied, one)) if type(one) in (list, tuple) else one
