"""Buffers that the training of a script does not write, such as random features: another seed makes ranks differ.

    first forward pass begins: checksums ─► a step ─► those of trained models that are as they were: ranks compare them

What training writes may differ between ranks, and is left out: statistics of BatchNorm, queues, codebooks, what a batch
fills. So is a buffer of one number: it often is the number of the rank or an offset, or has no contents at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from autotune.core.records import DriftingParameter
from autotune.targets.live_modules import class_name, left_to_ranks, live_modules, outermost, unwrapped
from autotune.targets.ranks.gradient_agreement import tensor_checksum


class UnwrittenBuffers:
    """The buffers of one rank, and which of them the ranks have with different values."""

    def __init__(self) -> None:
        self._before = dict[int, tuple[Tensor, int]]()  # by identity: the buffer, kept alive, and its checksum
        self._places = dict[str, tuple[nn.Module, str]]()  # of those to be compared; by number of their model and name
        self._differing = dict[str, tuple[int, ...]]()  # ranks that had other values than rank 0 at the latest look

    @property
    def are_open(self) -> bool:
        """Whether there are some to be compared, at first or again."""
        return bool(self._places)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch until the `with` block ends."""
        self._first_forward = register_module_forward_pre_hook(self._going_forward)
        try:
            yield
        finally:
            self._first_forward.remove()

    def choose(self, models: Iterable[nn.Module], left_out: Collection[int]) -> None:
        """Compare the buffers of these models from now on; `left_out`: not those, by identity.

        All ranks have to give their models in the same order.
        """
        for number, model in enumerate(map(unwrapped, models)):
            for path, module in model.named_modules():
                for key, one in module._buffers.items():
                    if id(one) in self._before and id(one) not in left_out:
                        name = ".".join(filter(None, (class_name(model), path, key)))
                        self._places[f"{number} {name}"] = module, key
        self.said()

    def said(self) -> dict[str, tuple[tuple[int, ...], int]]:
        """Return shape and checksum of each that nothing has written yet; what was written is compared no longer."""
        said = dict[str, tuple[tuple[int, ...], int]]()
        for place, (module, key) in self._places.items():
            # Those of torch.jit's modules have no `get`.
            known = self._before.get(id(dict(module._buffers.items()).get(key)))
            if known is not None and _checksum(known[0]) == known[1]:
                said[place] = tuple(known[0].shape), known[1]
        self._places = {place: self._places[place] for place in said}
        return said

    def compare(self, by_rank: Sequence[Mapping[str, Any]]) -> None:
        """Note which of them differ, by what each rank `said`; those that do not are compared no longer."""
        self._differing = {}
        for place, first in by_rank[0].items():
            each = [one.get(place) for one in by_rank]  # None: written on that rank
            if all(one is not None and one[0] == first[0] for one in each):
                ranks = tuple(number for number, one in enumerate(each) if one != first)
                self._differing |= {place: ranks} if ranks else {}
        self._places = {place: self._places[place] for place in self._differing}

    def drifting(self) -> Iterator[DriftingParameter]:
        """Yield those that differ. They refuse no training, because a rank may be meant to have its own.

        So says torch itself of DDP's `broadcast_buffers=False` (torch 2.13: "rank-local buffers").
        """
        for place, ranks in self._differing.items():
            yield DriftingParameter(name=place.partition(" ")[2], ranks=ranks, cause="unknown", meant="buffer")

    def _going_forward(self, module: nn.Module, _: Any) -> None:
        """Note all buffers before the first pass of a model that learns, which may fill some from its own batch."""
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return
        self._first_forward.remove()
        modules = live_modules()
        left_out = left_to_ranks(modules)
        for model in outermost(modules):
            for one in model.buffers():
                if id(one) not in left_out and (checksum := _checksum(one)) is not None:
                    self._before[id(one)] = one, checksum


def _checksum(buffer: Tensor) -> int | None:
    """Return that of a buffer with elements of its own in memory; None for any other, and for what torch cannot read.

    A small tensor that is expanded may have more elements than the memory of this machine.
    """
    try:
        if type(buffer) is not Tensor or buffer.layout is not torch.strided or buffer.is_meta or buffer.is_nested:
            return None
        if buffer.is_quantized or buffer.is_conj() or buffer.is_neg() or buffer.numel() <= 1:
            return None
        if buffer.numel() * buffer.element_size() > buffer.untyped_storage().nbytes():
            return None
        return tensor_checksum(buffer)
    except (RuntimeError, TypeError):  # what is only looked at must not end the script
        return None
