"""The tensors of one training step at their peak, by category and by the module that made them."""

from __future__ import annotations

from typing import Literal

from autotune.core.records import Record

Category = Literal["parameters", "gradients", "optimizer state", "activations", "batch", "temporary"]
# parameters: with buffers and averaged weights. activations: made in the forward pass, and alive when the backward
# pass begins. temporary: all else, such as gradients of activations. Buffers of kernels are no tensors, and not in it.
CATEGORIES: tuple[Category, ...] = ("parameters", "gradients", "optimizer state", "activations", "batch", "temporary")
OUTSIDE = "(loss)"  # tensors that no module made


class ModuleBytes(Record, frozen=True, kw_only=True):
    """The activations at the peak that one module made, without those of the modules in it."""

    name: str  # as `named_modules` has it; empty: the model itself
    kind: str  # its class
    bytes: int


class BlockBytes(Record, frozen=True, kw_only=True):
    """The activations at the peak that recomputing one block would not keep: all inside it except its output."""

    name: str
    kind: str
    bytes: int


class Breakdown(Record, frozen=True, kw_only=True):
    """The bytes of all tensors of a step at their peak."""

    categories: dict[Category, int]  # in the order of `CATEGORIES`, all of them
    modules: tuple[ModuleBytes, ...] = ()  # that made activations
    blocks: tuple[BlockBytes, ...] = ()  # blocks known to checkpointing, in the order of the model

    @property
    def bytes(self) -> int:
        """The bytes of all tensors together at the peak."""
        return sum(self.categories.values())
