"""Times how long ranks wait for one another: after a backward pass, before a forward pass, and in calls between.

    forward: communication, buffers or weights of all are there ─► forward
    backward: gradients of this rank are there ─► communication: those of all are ─► optimizer
    a line of the user's, or a library's, calls torch.distributed.all_reduce() ─► communication

An exchange during the backward pass takes no extra time and belongs to it: only the exposed exchange is counted. It
includes waiting for late ranks.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

from autotune.profile.measuring.stopwatch import Stopwatch, replaced
from autotune.profile.measuring.user_lines import UserLine, calling_line, known_as, owner, slow_line
from autotune.profile.records import SlowLine
from autotune.targets.commands.distributed import world_size

# Functions that wait for all ranks, and for one of them, as far as this build of torch has them.
COLLECTIVES = tuple(
    name
    for name in (
        "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
        "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object",
        "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list",
    )
    if hasattr(distributed, name)
)  # fmt: skip
# Functions that wait for an exchange begun with async_op=True, isend() or irecv().
WAITS: tuple[tuple[Any, str], ...] = ((distributed.Work, "wait"),) if hasattr(distributed, "Work") else ()
_SEARCH = "DistributedDataParallel(find_unused_parameters=True)"
_PAIRWISE = tuple(name for name in ("recv", "send") if hasattr(distributed, name))


@contextmanager
def exchange_told_apart(stopwatch: Stopwatch) -> Iterator[None]:
    """Mark the part communication on `stopwatch`, until the end; with one rank do nothing."""
    if world_size() == 1:
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(replaced(torch.autograd, "backward", _backward(torch.autograd.backward, stopwatch)))
        for kind, name in (*((distributed, name) for name in (*COLLECTIVES, *_PAIRWISE)), *WAITS):
            call = getattr(kind, name)
            waiting = _collective(call, stopwatch)
            stack.enter_context(replaced(kind, name, waiting))
            for module, known in known_as(call):
                stack.enter_context(replaced(module, known, waiting))
        for kind, name in _inner_waits():
            stack.enter_context(replaced(kind, name, stopwatch.during("communication", getattr(kind, name))))
        yield


def _inner_waits() -> Iterator[tuple[Any, str]]:
    """Yield the functions around a forward pass in which torch itself waits, as far as this torch has them.

    DDP sends buffers, such as BatchNorm's, from rank 0 to all; `fully_shard` gathers weights (torch 2.13).
    """
    sharding = importlib.import_module("torch.distributed.fsdp._fully_shard._fsdp_param_group")
    for kind, name in (
        (DistributedDataParallel, "_sync_buffers"),
        (getattr(sharding, "FSDPParamGroup", None), "unshard"),
        (getattr(sharding, "FSDPParamGroup", None), "wait_for_unshard"),
    ):
        if hasattr(kind, name):
            yield kind, name


def _backward(backward: Callable[..., None], stopwatch: Stopwatch) -> Callable[..., None]:
    """Return a backward pass whose end, after the gradients of this rank are there, is communication.

    The engine runs what was queued at the end of a pass in its order. DDP queues its waiting for the exchange once all
    gradients are there, and `fully_shard` when the pass comes to the model: what the loss queues comes before both.
    """

    def timed(tensors: Any, *arguments: Any, **options: Any) -> None:
        roots = [one for one in (tensors if isinstance(tensors, Sequence) else (tensors,)) if isinstance(one, Tensor)]
        is_queued = False

        def queue(gradient: Tensor) -> None:
            nonlocal is_queued
            if not is_queued:
                is_queued = True
                Variable._execution_engine.queue_callback(lambda: stopwatch.begin("communication"))

        with ExitStack() as stack:
            for root in roots:
                if root.grad_fn is not None:
                    stack.callback(root.register_hook(queue).remove)  # type: ignore[no-untyped-call]  # of torch's
            backward(tensors, *arguments, **options)
        if is_queued:
            stopwatch.end()

    return timed


def _collective(call: Callable[..., Any], stopwatch: Stopwatch) -> Callable[..., Any]:
    """Return a function that calls `call`, and counts as communication if the user's code or a library calls it."""
    timed = stopwatch.during("communication", call)

    def calling(*arguments: Any, **options: Any) -> Any:
        is_part = stopwatch.is_here and stopwatch.current != "backward"
        is_waited_for = is_part and who_waits(sys._getframe(1), options) in ("user", "other")
        return (timed if is_waited_for else call)(*arguments, **options)

    return calling


def who_waits(caller: FrameType, options: Mapping[str, Any]) -> str:
    """Return the owner (see `owner`) of the code that waits in a collective called with these options; empty: none.

    What a library calls is the library's: a line of the user's that runs a whole training says nothing of it.
    """
    return "" if options.get("async_op", False) else owner(caller.f_code.co_filename)


class GraphSearches:
    """Finds `find_unused_parameters` without need: DDP looks through every graph, and all parameters get a gradient."""

    def __init__(self) -> None:
        self._made: dict[int, _Wrapper] = {}  # by the identity of what exchanges their gradients

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note each wrapper that is made so, and by which line, until the end."""
        begin = DistributedDataParallel.__init__

        def noting(wrapper: DistributedDataParallel, *arguments: Any, **options: Any) -> None:
            begin(wrapper, *arguments, **options)
            if wrapper.find_unused_parameters and not wrapper.static_graph:
                line = calling_line(sys._getframe(1))
                self._made[id(wrapper.reducer)] = _Wrapper(wrapper, line)

        with replaced(DistributedDataParallel, "__init__", noting):
            yield

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Time the searches, and see which parameters get a gradient, until the end."""
        if not self._made:
            yield
            return
        exchanging: Any = distributed.Reducer  # type: ignore[attr-defined]  # torch does not say that it is there
        search, backward = exchanging.prepare_for_backward, torch.autograd.backward

        def searching(reducer: Any, outputs: list[Tensor]) -> None:
            began = time.perf_counter()
            search(reducer, outputs)
            if (made := self._made.get(id(reducer))) is not None and outputs:
                made.searched(time.perf_counter() - began)

        def going_back(*arguments: Any, **options: Any) -> None:
            backward(*arguments, **options)
            for made in self._made.values():
                made.went_back()

        with ExitStack() as stack:
            stack.enter_context(replaced(exchanging, "prepare_for_backward", searching))
            stack.enter_context(replaced(torch.autograd, "backward", going_back))
            for made in self._made.values():
                for one in made.trained.values():
                    stack.callback(one.register_post_accumulate_grad_hook(made.got_gradient).remove)
            yield

    def result(self, steps: int) -> list[SlowLine]:
        """Return the models that were searched in `steps` steps although every parameter always got a gradient."""
        return [
            slow_line("graph search", made.line, _SEARCH, made.searches / steps, made.seconds / steps)
            for made in self._made.values()
            if made.searches and not made.is_needed
        ]


class _Wrapper:
    """One model in `DistributedDataParallel`, whose graphs are searched."""

    def __init__(self, wrapper: DistributedDataParallel, line: UserLine | None) -> None:
        self.line = line  # that made it
        self.trained = {id(one): one for one in wrapper.module.parameters() if one.requires_grad}
        self.searches, self.seconds = 0, 0.0
        self.is_needed = False  # a backward pass left a parameter without a gradient
        self._got = set[int]()
        self._is_open = False  # a search was not followed by a backward pass yet

    def searched(self, seconds: float) -> None:
        """Note that one graph was searched: gradients are exchanged in the next backward pass."""
        self.searches, self.seconds, self._is_open = self.searches + 1, self.seconds + seconds, True
        self._got.clear()

    def got_gradient(self, parameter: Tensor) -> None:
        """Note that a backward pass gave this parameter a gradient."""
        self._got.add(id(parameter))

    def went_back(self) -> None:
        """Note that a backward pass is over, and whether it left a trained parameter without a gradient."""
        if self._is_open:
            self._is_open, self.is_needed = False, self.is_needed or self._got != self.trained.keys()
