"""Memory in the answer of `autotune profile`: categories up to the peak, modules, other optimizers, recomputing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from autotune.harmless import plain
from autotune.knobs import knob
from autotune.profile.judge import at_most, share_of_parts
from autotune.profile.memory_judge import (
    TENSOR_AGREEMENT,
    disagreement,
    largest_modules,
    peak_bytes,
    recomputing_seconds,
    rows,
    saved_by,
    taken_apart,
)
from autotune.profile.memory_records import MemoryUse
from autotune.profile.records import ModuleSeconds, ProfileResult
from autotune.profile.wrapping import broken_into_lines
from autotune.units import format_rate, format_share, format_speedup

MEMORY_BAR_CHARACTERS = 30
LEAST_MEMORY_SHARE = 0.001  # of the peak: categories that take less are left out
MOST_MEMORY_MODULES = 3
MOST_BLOCKS = 3  # of those that checkpointing takes one by one
WORTHWHILE_RATIO = 1.05  # times the saving of a cheaper policy: policies that save less are left out; --json has them


def memory_block(result: ProfileResult) -> Text:
    """Return the lines about memory; empty if it was not measured."""
    use, block = result.memory, Text()
    if use is None:
        return block
    total, found = peak_bytes(use), rows(use)
    block.append(f"\n  {'memory':<16}{'MiB':>9}  share of {_mib(total)} at the peak\n", "dim")
    longest = max(size for _, size in found)
    for name, size in found:
        if abs(size) >= LEAST_MEMORY_SHARE * total:
            block.append(f"  {name:<16}{_mib(size):>9}  {format_share(size / total):>5}  ")
            block.append("█" * max(0, round(MEMORY_BAR_CHARACTERS * size / longest)) + "\n", "cyan")
    for line in memory_sentences(result):
        block.append(broken_into_lines(plain(line), "  "))
    return block


def memory_sentences(result: ProfileResult) -> list[str]:
    """Return the sentences about memory below its rows, unbroken, with users' names as they are."""
    if (use := result.memory) is None:
        return []
    told = (_tensors(use), _activations(use), _optimizers(use), _recomputing(use, result.modules), _padding(result))
    return [one for one in told if one]


def _tensors(use: MemoryUse) -> str:
    """Return a sentence on the tensors in the peak, and whether the shape run agrees."""
    found, difference = taken_apart(use), disagreement(use)
    why = use.shapes.why if use.shapes else ""
    if found is None:
        return f"tensors not counted: the model is compiled, and by shapes alone {why or 'nothing is known'}"
    if use.tensors is None:
        return f"tensors: {_mib(found.bytes)} by shapes alone; those of a compiled model are not counted"
    begin = f"tensors: {_mib(found.bytes)} counted in a step"
    if difference is None:
        return f"{begin}; by shapes alone unknown, because {why}" if why else begin
    by, where = difference
    says = f"{_mib(found.bytes * (1 + by))} by shapes alone"
    if abs(by) <= TENSOR_AGREEMENT:
        return f"{begin}, {says}"
    return f"{begin}, {says}: {format_share(abs(by))} {'more' if by > 0 else 'less'}, most of it {where}"


def _activations(use: MemoryUse) -> str:
    found = taken_apart(use)
    modules = largest_modules(found.modules) if found else []
    if not modules:
        return ""
    total = sum(one.bytes for one in modules)
    names = (f"{one.name} {one.kind}".strip() for one in modules)
    shown = [f"{name} {format_share(one.bytes / total)}" for name, one in zip(names, modules, strict=True)]
    return f"activations: {', '.join(shown[:MOST_MEMORY_MODULES])}"


def _optimizers(use: MemoryUse) -> str:
    """Return a sentence on the optimizer's state, and the state of other optimizers."""
    found = taken_apart(use)
    if not use.states or found is None:
        return ""
    others = ", ".join(f"{one.optimizer} {_mib(one.bytes)}" for one in use.states)
    return f"state: {use.optimizer} {_mib(found.categories['optimizer state'])}; of others {others}"


def _recomputing(use: MemoryUse, modules: Sequence[ModuleSeconds]) -> str:
    """Return a sentence on the savings of policies, and the largest blocks with their recomputing times."""
    found, ways = taken_apart(use), _better(saved_by(use))
    blocks = found.blocks if found else ()
    if not blocks or not ways:
        return ""
    costs = {one.name: recomputing_seconds(one.name, modules) or 0.0 for one in blocks}
    largest = sorted(blocks, key=lambda one: (-one.bytes, costs[one.name]))[:MOST_BLOCKS]
    by_block = [
        f"{one.name} {one.kind} {_mib(one.bytes)}"
        + (f" for {format_rate(1000 * costs[one.name])} ms" if costs[one.name] else "")
        for one in largest
    ]
    saves = ", ".join(f"{_show(name, value, len(blocks))} {_mib(size)}" for name, value, size in ways)
    return f"{knob(ways[0][0]).label} saves {saves}; blocks hold {', '.join(by_block)}"


def _better(ways: Sequence[tuple[str, Any, int]]) -> list[tuple[str, Any, int]]:
    """Return the policies that save more than those before them, which recompute less."""
    better = list[tuple[str, Any, int]]()
    for one in ways:
        if not better or one[2] > WORTHWHILE_RATIO * better[-1][2]:
            better.append(one)
    return better


def _show(name: str, value: Any, count: int) -> str:
    return f"all {count}:" if value is True else knob(name).show(value)


def _padding(result: ProfileResult) -> str:
    use = result.memory
    if use is None or not use.padding:
        return ""
    most = format_speedup(at_most(use.padding * share_of_parts(result, "forward", "backward")))
    return (
        f"padding: {format_share(use.padding)} of the tokens; batches of like lengths, or packing, give at most {most}×"
    )


def _mib(size: float) -> str:
    mib = abs(size) / 2**20
    shown = format_rate(mib) if mib >= 0.001 else "0"
    return f"-{shown}" if size < 0 and shown != "0" else shown
