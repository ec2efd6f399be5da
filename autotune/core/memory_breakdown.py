"""The tensors of one training step at their peak, by category and by the module that made them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from autotune.core.records import Record

Category = Literal["parameters", "gradients", "optimizer state", "activations", "batch", "temporary"]
# parameters: with buffers and averaged weights. activations: made in the forward pass, and alive when the backward
# pass begins. temporary: all else, such as gradients of activations. Buffers of kernels are no tensors, and not in it.
CATEGORIES: tuple[Category, ...] = ("parameters", "gradients", "optimizer state", "activations", "batch", "temporary")
ALLOCATION_SITES = "autotune_allocation_sites"  # attribute of an exception: the sites of what was alive
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


class AllocationSite(Record, frozen=True, kw_only=True):
    """The tensors of one line of the user's that were alive together."""

    place: str  # "model.py:31"; empty: no line of the user's made them, or it was not recorded
    bytes: int
    count: int  # of tensors with a storage of their own


def sites_of(made: Iterable[tuple[str, int]]) -> tuple[AllocationSite, ...]:
    """Return the sites of tensors, each with the line that made it (`model.py:31`) and its bytes; the most first."""
    found: dict[str, list[int]] = {}
    for place, size in made:
        found.setdefault(place, []).append(size)
    sites = [AllocationSite(place=place, bytes=sum(sizes), count=len(sizes)) for place, sizes in found.items()]
    return tuple(sorted(sites, key=lambda one: (-one.bytes, one.place)))


class Breakdown(Record, frozen=True, kw_only=True):
    """The bytes of all tensors of a step at their peak."""

    categories: dict[Category, int]  # in the order of `CATEGORIES`, all of them
    modules: tuple[ModuleBytes, ...] = ()  # that made activations
    blocks: tuple[BlockBytes, ...] = ()  # blocks known to checkpointing, in the order of the model
    sites: tuple[AllocationSite, ...] = ()  # of all these bytes, the most first; (): not asked for

    @property
    def bytes(self) -> int:
        """The bytes of all tensors together at the peak."""
        return sum(self.categories.values())
