"""Tensors that a script exchanges among its ranks by itself: parameters that it averages, or parts of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd.function import BackwardCFunction
from torch.distributed import ProcessGroup

# As far as this build of torch has them. Not isend and irecv, which torch compares with what a `P2POp` is given.
_CALLS = (
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single",
    "batch_isend_irecv", "broadcast", "gather", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
    "send",
)  # fmt: skip
_BETWEEN_TWO = ("send", "recv", "recv_anysource")
_FEW_ELEMENTS = 16  # losses and counters: to exchange these is not to train one model
_OF_BATCH_NORM = "SyncBatchNormBackward"  # exchanges statistics in data parallelism


class OwnExchanges:
    """Watches calls of `torch.distributed` by Python code; those of DDP's own exchange are none."""

    def __init__(self) -> None:
        self.is_on = False  # before the first step ranks may be made equal, which says nothing of later steps
        self.adds_up = False  # it called all_reduce, also before the first step: it may average gradients itself
        self.is_in_backward = False  # a backward pass of the script's, or of `torch.distributed.nn`, called one
        self.is_many = False  # more than losses and counters, by whatever way: gradients, parameters, or activations
        self._storages = set[int]()  # of what was exchanged, by address

    def has(self, parameter: Tensor) -> bool:
        """Return whether the values of that parameter were exchanged."""
        return _address(parameter) in self._storages

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch until the `with` block ends, also functions that are imported in it."""
        with ExitStack() as stack:
            for name in (one for one in _CALLS if hasattr(distributed, one)):
                original = getattr(distributed, name)
                noting = self._noting(original)
                for module in (distributed, distributed.distributed_c10d):
                    stack.callback(setattr, module, name, original)
                    setattr(module, name, noting)
            for name in _BETWEEN_TWO:  # of isend and irecv, too
                original = getattr(ProcessGroup, name)
                stack.callback(setattr, ProcessGroup, name, original)
                setattr(ProcessGroup, name, self._noting_size(original))
            yield

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        adds_up = original.__name__.startswith("all_reduce")

        @wraps(original)
        def call(*arguments: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(*arguments, **named)
            self.adds_up |= adds_up
            if self.is_on:
                self._note_size([*arguments, *named.values()])
                self._storages.update(map(_address, _tensors([*arguments, *named.values()])))
                node = torch._C._current_autograd_node()
                is_own = isinstance(node, BackwardCFunction) and type(node).__name__ != _OF_BATCH_NORM
                self.is_in_backward |= is_own
            return original(*arguments, **named)

        return call

    def _noting_size(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(group: Any, tensors: Any, *arguments: Any, **named: Any) -> Any:
            if self.is_on and not torch.compiler.is_compiling():
                self._note_size([tensors])
            return original(group, tensors, *arguments, **named)

        return call

    def _note_size(self, values: list[Any]) -> None:
        # Objects travel as bytes, and say nothing of the training.
        self.is_many |= any(is_many(one) and (one.is_floating_point() or one.is_complex()) for one in _tensors(values))


def is_many(tensor: Tensor) -> bool:
    """Return whether it has more elements than losses and counters, and than signs that are equal by chance."""
    return tensor.numel() > _FEW_ELEMENTS


def _tensors(values: list[Any]) -> Iterator[Tensor]:
    for one in values:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, list | tuple):
            yield from _tensors(list(one))
        elif isinstance(one, distributed.P2POp):
            yield one.tensor


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0
