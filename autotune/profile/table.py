"""`autotune profile` in the terminal: bottleneck, parts, modules, memory, slow lines; at most 40 lines."""

from __future__ import annotations

from rich.text import Text

from autotune.core.records import Config
from autotune.harmless import cropped, plain
from autotune.knobs import KNOBS
from autotune.profile.advice import instead, seen, tried
from autotune.profile.judge import (
    LEAST_SLOW_LINE_SHARE,
    at_most,
    bound_shares,
    expensive_lines,
    expensive_modules,
    late_rank,
    share_of_parts,
    step_bottleneck,
)
from autotune.profile.memory_table import memory_block
from autotune.profile.records import NO_LINE, ProfileResult, Work
from autotune.profile.storage_judge import storage_doubts, storage_sentence
from autotune.profile.wrapping import LINE_WIDTH, broken_into_lines
from autotune.units import counted, format_bytes, format_ms, format_rate, format_share

TIME_BAR_CHARACTERS = 30  # characters of the longest bar
MOST_TIMED_MODULES, MOST_SHOWN_LINES = 4, 3  # that are shown; --json has all
LEAST_PART_SHARE = 0.001  # of a step: parts that take less are left out
LEAST_BOUND = 0.5  # of a step: if each bound takes less, none explains most of the step


def profile_block(label: str, config: Config, device: str, result: ProfileResult) -> Text:
    """Return the answer, of lines up to 100 characters."""
    values = " · ".join(
        filter(None, (one.phrase(config.values[one.name]) for one in KNOBS if one.name in config.values))
    )
    rate = format_rate(result.samples / result.seconds)
    steps = counted(result.steps, "step")
    samples = f"{round(result.samples, 1):,g}"  # the mean: the last batch of an epoch may be smaller
    place = f"{device}, rank {result.rank} of {len(result.ranks)}" if result.ranks else device
    rates = f" on {place}: {format_ms(result.seconds)} ms a step of {samples} samples, {rate} samples/s ({steps})"
    block = Text(f"{cropped(plain(label), LINE_WIDTH - len(rates))}{rates}\n")
    block.append(broken_into_lines(plain(values), "  "), "dim")
    block.append(f"{step_bottleneck(result)}\n", "bold")
    block.append_text(_parts(result))
    if late := late_rank(result):
        block.append(broken_into_lines(late, "  "))
    block.append_text(_modules(result))
    if result.work is not None:
        block.append(broken_into_lines(work_phrase(result.work, result.seconds), "  "))
    if bound := bound_phrase(result):
        block.append(broken_into_lines(bound, "  "))
    block.append_text(memory_block(result))
    if result.storage is not None:
        block.append("\n" + broken_into_lines(storage_sentence(result.storage), "  "))
    return block.append_text(_slow_lines(result))


def doubt(result: ProfileResult) -> str:
    """Return a sentence that other processes slowed the steps; empty if they did not."""
    found = result.interference
    if found is None or not found.is_noticeable:
        return ""
    return (
        f"Other processes kept {found.foreign_cores or 0:.1f} cores busy, and the steps waited "
        f"{format_share(found.run_queue_wait_share or 0)} of their time for a core: times are too long, and most so "
        f"where threads wait for each other. Profile again when the machine is quiet."
    )


def doubts(result: ProfileResult) -> list[str]:
    """Return a sentence for each doubt about the readings, and for each part that was not measured."""
    moved = [] if result.storage is None else storage_doubts(result.storage)
    return [*filter(None, [doubt(result)]), *moved, *result.left_out]


def _parts(result: ProfileResult) -> Text:
    shown = [one for one in result.parts if share_of_parts(result, one.part) >= LEAST_PART_SHARE]
    names, longest = max(len("optimizer"), *(len(one.part) for one in shown)), max(one.seconds for one in shown)
    block = Text(f"  {'part':<{names}}       ms  share  if it took no time\n", "dim")
    for one in shown:
        of_step = share_of_parts(result, one.part)
        shares = f"{format_share(of_step):>5}  {at_most(of_step):>17.2f}×  "
        block.append(f"  {one.part:<{names}} {format_ms(one.seconds):>8}  {shares}")
        block.append("█" * round(TIME_BAR_CHARACTERS * one.seconds / longest) + "\n", "cyan")
    return block


def _modules(result: ProfileResult) -> Text:
    block = Text()
    if not result.modules:
        return block
    rows = expensive_modules(result.modules)
    total = sum(one.forward + one.backward for one in rows)
    names = max(len("module"), *(len(f"{one.name} {one.kind}") for one in rows[:MOST_TIMED_MODULES]))
    names = min(names, LINE_WIDTH - 58)
    block.append(f"\n  {'module':<{names}}  forward ms  backward ms  share of both, in later steps\n", "dim")
    for one in rows[:MOST_TIMED_MODULES]:
        name = cropped(plain(f"{one.name} {one.kind}".strip()), names)
        block.append(
            f"  {name:<{names}}  {format_ms(one.forward):>10}  {format_ms(one.backward):>11}  "
            f"{format_share((one.forward + one.backward) / total):>13}\n"
        )
    return block


def work_phrase(work: Work, seconds: float) -> str:
    """Return in words the operations of a step, and their share of this machine's peak rate."""
    if work.flops is None:
        return f"operations not counted: {work.why}"
    share_of_peak = format_share(work.flops / seconds / work.peak_flops)
    return (
        f"{_giga(work.flops)} GFLOP a step, {_giga(work.flops / seconds)} GFLOP/s: {share_of_peak} of the "
        f"{_giga(work.peak_flops)} of one {work.dtype} product ({work.size} × {work.size})"
    )


def bound_phrase(result: ProfileResult) -> str:
    """Return in words the largest bound of the step, of operations, memory, calls and data; empty: not counted."""
    found, bounds = bound_shares(result), result.bounds
    if not found or bounds is None:
        return ""
    names = {
        "compute": "operations",
        "memory": f"moving {format_bytes(bounds.moved_bytes)}",
        "launch": f"{bounds.calls:,} calls",
        "data": "data",
    }
    told = ", ".join(f"{names[one]} {format_share(of_step)}" for one, of_step in found.items())
    largest, of_step = next(iter(found.items()))
    bound = largest if of_step >= LEAST_BOUND else "none of these"
    return f"bound by {bound}: {told} of the step"


def _slow_lines(result: ProfileResult) -> Text:
    found = expensive_lines(result)
    if not found:
        return Text(
            f"\nNo line of yours was found that costs {format_share(LEAST_SLOW_LINE_SHARE)} of a step or more.\n",
            "green",
        )
    block = Text("\n")
    for one in found[:MOST_SHOWN_LINES]:
        cost = (
            f"{format_ms(one.seconds)} ms a step ({format_share(one.seconds / result.seconds)})"
            if not one.bytes
            else ""
        )
        place = plain(one.place) or f"({NO_LINE})"
        block.append(broken_into_lines(" ".join(filter(None, (place, cost))) + f": {plain(seen(one))}"), "yellow")
        code = f"{plain(one.code)}   →   " if one.code and len(one.code) <= LINE_WIDTH else ""
        block.append(broken_into_lines(f"{code}{instead(one)}", "    "))
        if said := plain(tried(one)):
            block.append(broken_into_lines(said, "    "))
    if len(found) > MOST_SHOWN_LINES:
        block.append(f"and {counted(len(found) - MOST_SHOWN_LINES, 'finding')} more: --json\n", "dim")
    return block


def _giga(flops: float) -> str:
    return format_rate(flops / 1e9)
