"""Judges the readings of memory: rows that add up to the peak, modules, savings by recomputing. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.memory_breakdown import CATEGORIES, OUTSIDE, AllocationSite, Breakdown, ModuleBytes
from autotune.core.records import Value
from autotune.profile.memory_records import MemoryUse
from autotune.profile.module_tree import is_inside, parts_of
from autotune.profile.records import NO_LINE, ModuleSeconds
from autotune.units import counted, format_bytes, format_share

TENSOR_AGREEMENT = 0.03  # relative difference up to which counted tensors and those of the shape run count as equal
EXPANDED_ACTIVATION_SHARE = 0.25  # of the activations: a module with more is replaced by its parts
MOST_NAMED_SITES, LEAST_NAMED_SITE = 3, 0.01  # of the bytes of all sites
CONTEXT, CACHED, UNEXPLAINED = "context", "cached", "not explained"
BUFFERS, CODE, KEPT, LATER = "buffers", "kernels' code", "kept by malloc", "more at its peak"


def peak_bytes(use: MemoryUse) -> int:
    """Return the peak: of the device with its context, else of the process without its loader workers."""
    return use.peak.process_bytes if use.peak.reserved_bytes is None else use.peak.bytes


def taken_apart(use: MemoryUse) -> Breakdown | None:
    """Return the tensors of a step: counted, else by the shape run."""
    return use.tensors or (use.shapes.breakdown if use.shapes else None)


def rows(use: MemoryUse) -> list[tuple[str, int]]:
    """Return the parts of the peak, in bytes; together they are the peak.

    The unexplained part is negative if memory is in two rows: memory that was freed before the first step is in the
    context, and is used again.
    """
    found = taken_apart(use)
    known: list[tuple[str, int]] = [(one, found.categories[one]) for one in CATEGORIES] if found else []
    buffers = use.heap.buffers_bytes if use.heap else 0
    known.append((CONTEXT, use.context_bytes + min(0, buffers)))  # without memory that it has freed since then
    if use.heap is not None:
        heap = use.heap
        known += [(BUFFERS, max(0, buffers)), (CODE, heap.code_bytes)]
        known += [(KEPT, heap.kept_bytes), (LATER, heap.later_bytes)]
    if use.peak.reserved_bytes is not None and use.peak.allocated_bytes is not None:
        known.append((CACHED, use.peak.reserved_bytes - use.peak.allocated_bytes))
    return [*known, (UNEXPLAINED, peak_bytes(use) - sum(size for _, size in known))]


def disagreement(use: MemoryUse) -> tuple[float, str] | None:
    """Return the share by which the shape run exceeds the count, and the category that differs most; None: unknown."""
    counted, shapes = use.tensors, use.shapes.breakdown if use.shapes else None
    if counted is None or shapes is None:
        return None
    most = max(CATEGORIES, key=lambda one: abs(shapes.categories[one] - counted.categories[one]))
    return shapes.bytes / max(1, counted.bytes) - 1, most


def largest_modules(modules: Sequence[ModuleBytes]) -> list[ModuleBytes]:
    """Return modules with the activations of all inside them, largest first; together they are all activations.

    A module with more than a quarter is replaced by its parts.
    """
    tree = {one.name: one for one in modules if one.name != OUTSIDE}
    total = sum(one.bytes for one in modules)
    shown = [one for one in modules if one.name == OUTSIDE]
    waiting = [("", "(model)")]
    while waiting:
        name, label = waiting.pop()
        inside = {other: one for other, one in tree.items() if is_inside(other, name)}
        size = sum(one.bytes for one in inside.values())
        parts = parts_of(name, inside)
        if parts and size > EXPANDED_ACTIVATION_SHARE * total:
            waiting += [(part, part) for part in parts]
            inside, label = {name: tree[name]} if name in tree else {}, f"{label} itself"
            size = sum(one.bytes for one in inside.values())
        if size:
            shown.append(ModuleBytes(name=label, kind=tree[name].kind if name in tree else "", bytes=size))
    return sorted(shown, key=lambda one: -one.bytes)


def saved_by(use: MemoryUse) -> list[tuple[str, Value, int]]:
    """Return knob, value and saved bytes of the peak, by the shape run, for the values that save any."""
    own = use.shapes.breakdown if use.shapes else None
    if own is None:
        return []
    found = [
        (name, value, own.bytes - one.breakdown.bytes)
        for one in use.recomputed
        if one.breakdown is not None
        for name, value in one.values.items()
    ]
    return [one for one in found if one[2] > 0]


def largest_sites(sites: Sequence[AllocationSite]) -> str:
    """Return in words the lines that made most: `model.py:31 made 61% (1.2 GiB in 3 tensors), ...`; empty: unknown."""
    total = max(1, sum(one.bytes for one in sites))
    return ", ".join(
        f"{one.place or NO_LINE} made {format_share(one.bytes / total)} "
        f"({format_bytes(one.bytes)} in {counted(one.count, 'tensor')})"
        for one in sites[:MOST_NAMED_SITES]
        if one is sites[0] or one.bytes >= LEAST_NAMED_SITE * total
    )


def held_then(sites: Sequence[AllocationSite]) -> str:
    """Return a sentence on what tensors held when memory ran out; empty: unknown."""
    if not sites:
        return ""
    held = format_bytes(sum(one.bytes for one in sites))
    return f"When memory ran out, tensors held {held}: {largest_sites(sites)}."


def recomputing_seconds(block: str, modules: Sequence[ModuleSeconds]) -> float | None:
    """Return the seconds of a step that the forward pass of a block takes again; None: not measured."""
    inside = [one.forward for one in modules if is_inside(one.name, block)]
    return sum(inside) if inside else None
