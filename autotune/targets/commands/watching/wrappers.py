"""The `DistributedDataParallel` wrappers of a script: which line made each, how it is called, and what is needless.

forward pass ─► does its backward pass exchange? ─► backward pass ─► all parameters have a gradient? ─► step
     └ another one before the step, while gradients are added up: the exchange of the first was too early
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from autotune.errors import TargetError
from autotune.targets.ranks.gradient_agreement import explained
from autotune.targets.ranks.unused_parameters import SEARCH_IN_SCRIPT
from autotune.targets.tracebacks import calling_place

# Passes that must need no search, so that it is told to be needless: a layer that one in ten batches skips is left out
# in 83 % of so many, on one of two ranks in 97 %.
LEAST_SEARCHES, MOST_SEARCH_SECONDS = 17, 30.0
_SAID = "_autotune_said"  # attribute of an error: torch's own words, which Lightning replaces by some without names


class Wrapper:
    """The observations about one wrapper."""

    def __init__(self, place: str) -> None:
        self.place = place  # of the line that made it
        self.forward = ""  # the line of its latest forward pass with gradients; empty: there was none
        self.exchanges = False  # whether that forward pass was outside of no_sync()
        self.is_open = False  # no backward pass has followed it
        self.searches, self.is_search_needed = 0, False  # for unused parameters
        self.reached = set[int]()  # parameters that got a gradient in this backward pass, by identity
        self.exchanged = ""  # the line of the forward pass whose gradients were exchanged since the last step
        self.early = list[str]()


class Wrappers:
    """All wrappers that are made while `watched`."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[nn.Module, Wrapper] = WeakKeyDictionary()
        self._is_in_backward = False
        self._first_search = 0.0  # time of it
        self._stack = ExitStack()

    def of(self, module: nn.Module) -> Wrapper:
        """Return the observations about that `DistributedDataParallel`."""
        return self._made.setdefault(module, Wrapper(""))

    def stepped(self) -> None:
        """Note that an optimizer begins or ends a step, whose closure may compute: gradients are added up no longer."""
        for one in self._made.values():
            one.exchanged = ""

    def needless_searches(self) -> tuple[str, ...]:
        """Return the lines with find_unused_parameters=True, where every parameter got a gradient in each step."""
        return _lines(one.place for one in self._made.values() if one.searches and not one.is_search_needed)

    @property
    def are_undecided(self) -> bool:
        """Whether a wrapper has searched too seldom to say that it need not."""
        few = any(0 < one.searches < LEAST_SEARCHES and not one.is_search_needed for one in self._made.values())
        return few and time.monotonic() - self._first_search < MOST_SEARCH_SECONDS

    def early_exchanges(self) -> tuple[str, ...]:
        """Return the lines of forward passes after which ranks exchanged gradients that were not complete."""
        return _lines(line for one in self._made.values() for line in one.early)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch until the `with` block ends."""
        with self._stack:
            for owner, name, around in (
                (DistributedDataParallel, "__init__", self._making),
                (DistributedDataParallel, "forward", self._going_forward),
                (torch.autograd, "backward", self._going_back),
            ):
                original = getattr(owner, name)
                self._stack.callback(setattr, owner, name, original)
                setattr(owner, name, around(original))
            yield

    def _making(self, original: Callable[..., None]) -> Callable[..., None]:
        def make(wrapper: DistributedDataParallel, *arguments: Any, **named: Any) -> None:
            original(wrapper, *arguments, **named)
            self._made[wrapper] = made = Wrapper(calling_place(sys._getframe(1)))
            if wrapper.find_unused_parameters and not wrapper.static_graph:
                for one in wrapper.module.parameters():
                    if one.requires_grad:
                        hook = one.register_post_accumulate_grad_hook(lambda reached: made.reached.add(id(reached)))
                        self._stack.callback(hook.remove)

        return make

    def _going_forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(wrapper: DistributedDataParallel, *arguments: Any, **named: Any) -> Any:
            if not torch.compiler.is_compiling() and torch.is_grad_enabled():
                self._go_forward(wrapper, calling_place(sys._getframe(1)))
            try:
                return original(wrapper, *arguments, **named)
            except RuntimeError as error:
                vars(error)[_SAID] = str(error)
                raise

        return forward

    def _go_forward(self, wrapper: DistributedDataParallel, place: str) -> None:
        made = self.of(wrapper)
        if made.exchanged and any(one.grad is not None for one in wrapper.module.parameters()):
            made.early.append(made.exchanged)
        made.exchanged, made.is_open = "", True
        made.forward, made.exchanges = place, wrapper.require_backward_grad_sync
        made.reached.clear()

    def _going_back(self, original: Callable[..., None]) -> Callable[..., None]:
        def backward(*arguments: Any, **named: Any) -> None:
            if self._is_in_backward:  # of checkpointing
                return original(*arguments, **named)
            self._is_in_backward = True
            try:
                original(*arguments, **named)
            finally:
                self._is_in_backward = False
            for wrapper, made in list(self._made.items()):
                self._went_back(wrapper, made)
            return None

        return backward

    def _went_back(self, wrapper: Any, made: Wrapper) -> None:
        is_open, made.is_open = made.is_open, False
        if not is_open or not made.exchanges:
            return
        made.exchanged = made.forward
        if wrapper.find_unused_parameters and not wrapper.static_graph:
            trained = {id(one) for one in wrapper.module.parameters() if one.requires_grad}
            made.searches += 1
            self._first_search = self._first_search or time.monotonic()
            made.is_search_needed |= not trained <= made.reached


def unused_of_script(error: RuntimeError) -> TargetError | None:
    """Return the error of a wrapper that waits for gradients, with the names of parameters; None for another error."""
    said = RuntimeError(vars(error).get(_SAID, str(error)))
    for frame, _ in traceback.walk_tb(error.__traceback__):
        wrapper = frame.f_locals.get("self")
        if isinstance(wrapper, DistributedDataParallel):
            return explained(said, wrapper.module, wrapper.process_group, SEARCH_IN_SCRIPT)
    return None


def _lines(places: Iterator[str]) -> tuple[str, ...]:
    return tuple(sorted({one for one in places if one}))
