"""Judges the readings of a profile: shares of a step, the largest gain of a remedy, slow lines in order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from autotune.profile.module_tree import is_inside, parts_of
from autotune.profile.records import ModuleSeconds, Part, PartSeconds, ProfileResult, SlowLine
from autotune.units import format_ms, format_speedup

LEAST_SLOW_LINE_SHARE = 0.01  # of a step: a line that takes less is not worth an edit
LEAST_LATE = 0.1  # of a step: a rank that waits so much less than another is late; otherwise ranks are equal
LEAST_EXPLAINED = 0.3  # of a rank's waiting: a part whose excess is less is not the reason
EXPANDED_TIME_SHARE = 0.25  # of forward and backward pass: a module that takes more is shown by its parts
_REMEDIES: Mapping[Part, tuple[str, str]] = {
    "data": ("Waiting for data", "loader workers, or a faster dataset,"),
    "copy": ("Copying batches to the device", "pinned memory"),
    "communication": ("Waiting for other ranks", "exchanging less, or hiding it behind the backward pass,"),
    "optimizer": ("The optimizer", "a faster update, such as a fused one,"),
    "other": ("What is between the parts of a step", "leaving it out"),
}
_ITSELF = " itself"  # behind the name of a module that is shown without its parts
_COMPUTING: tuple[Part, ...] = ("forward", "backward")


def share_of_parts(result: ProfileResult, *parts: Part) -> float:
    """Return the share of a step that these parts take together, 0..1."""
    return sum(one.seconds for one in result.parts if one.part in parts) / result.seconds


def at_most(of_step: float) -> float:
    """Return the factor by which steps would be faster if the share `of_step` took no time (Amdahl 1967)."""
    return 1 / max(1 - of_step, 1e-9)


def step_bottleneck(result: ProfileResult) -> str:
    """Return a sentence on the part that takes most, with the largest possible gain of a remedy.

    Forward and backward pass count as one, because a change that makes one faster mostly makes the other faster, too.
    """
    computing = share_of_parts(result, *_COMPUTING)
    others = {one.part: share_of_parts(result, one.part) for one in result.parts if one.part not in _COMPUTING}
    largest = max(others, key=lambda part: others[part])
    if computing >= others[largest]:
        loading = f", loader workers {_factor(others['data'])}" if others["data"] >= LEAST_SLOW_LINE_SHARE else ""
        most = f"making them faster can give at most {_factor(computing)}{loading}"
        return f"Model and loss take {computing:.0%} of a step: {most}."
    what, remedy = _REMEDIES[largest]
    return f"{what} takes {others[largest]:.0%} of a step: {remedy} can give at most {_factor(others[largest])}."


def waits_of(ranks: Sequence[Sequence[PartSeconds]]) -> list[float]:
    """Return the seconds of a step that each rank waits for the others, by its parts."""
    return [sum(one.seconds for one in parts if one.part == "communication") for parts in ranks]


def late_rank(result: ProfileResult) -> str:
    """Return a sentence on which rank waits for which, and for which part of its step; empty: none is late.

    That part is the one with the largest excess of the late rank over the rank that waits most.
    """
    waits = waits_of(result.ranks)
    if not waits or max(waits) - waits[result.rank] <= LEAST_LATE * result.seconds:
        return ""
    waiting = waits.index(max(waits))
    late, other = ({one.part: one.seconds for one in result.ranks[at]} for at in (result.rank, waiting))
    more = {part: late[part] - other.get(part, 0.0) for part in late if part != "communication"}
    part, waited = max(more, key=lambda one: more[one]), max(waits) - waits[result.rank]
    told = f"Rank {waiting} waits {format_ms(waited)} ms a step longer than rank {result.rank}"
    if more[part] < LEAST_EXPLAINED * waited:  # the ranks do not wait in every step
        return f"{told}."
    return f"{told}, where `{part}` takes {format_ms(more[part])} ms more."


def bound_shares(result: ProfileResult) -> dict[str, float]:
    """Return the least share of a step that each bound takes, the largest first; empty: not counted.

    This is a roofline (Williams, Waterman, Patterson 2009) with two more roofs: waiting for data, and the time of
    calls.
    """
    work, bounds = result.work, result.bounds
    if work is None or work.flops is None or bounds is None:
        return {}
    found = {
        "compute": work.flops / work.peak_flops / result.seconds,
        "memory": bounds.moved_bytes / bounds.bytes_per_second / result.seconds,
        "launch": bounds.calls * bounds.call_seconds / result.seconds,
        "data": share_of_parts(result, "data"),
    }
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def _factor(of_step: float) -> str:
    return f"{format_speedup(at_most(of_step))}×"


def expensive_lines(result: ProfileResult) -> list[SlowLine]:
    """Return the slow lines that take a hundredth of a step or more, most expensive first; growing memory before all.

    Growing memory ends the training, however little time it takes.
    """
    worth = [one for one in result.slow_lines if one.bytes or one.seconds >= LEAST_SLOW_LINE_SHARE * result.seconds]
    return sorted(worth, key=lambda one: (not one.bytes, -one.seconds))


def expensive_modules(modules: Sequence[ModuleSeconds]) -> list[ModuleSeconds]:
    """Return modules with the times of all inside them, most expensive first; together they are the whole pass.

    A module that takes more than a quarter is replaced by its parts. Times outside all modules count for `(loss)`.
    """
    tree = {one.name: one for one in modules if not one.name.startswith("(")}
    outside = [one for one in modules if one.name.startswith("(")]
    shown = [_whole("", tree)]
    total = shown[0].forward + shown[0].backward
    while large := [one for one in shown if _both(one) > EXPANDED_TIME_SHARE * total and parts_of(one.name, tree)]:
        for one in large:
            shown.remove(one)
            shown += [_whole(part, tree) for part in parts_of(one.name, tree)]
            if (own := tree.get(one.name)) is not None:  # the time of the module's own code
                shown.append(replace(own, name=f"{one.name or '(model)'}{_ITSELF}"))
    return sorted([*shown, *outside], key=_both, reverse=True)


def _both(one: ModuleSeconds) -> float:
    return one.forward + one.backward


def _whole(name: str, tree: Mapping[str, ModuleSeconds]) -> ModuleSeconds:
    """Return a module with the times of all modules inside it."""
    inside = [one for other, one in tree.items() if is_inside(other, name)]
    return ModuleSeconds(
        name=name, kind=tree[name].kind if name in tree else "", forward=sum(one.forward for one in inside),
        backward=sum(one.backward for one in inside),
    )  # fmt: skip
