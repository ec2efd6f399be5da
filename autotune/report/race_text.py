"""The result of a race in words, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.text import Text

from autotune.knobs import KNOBS
from autotune.knobs.declared import declaring
from autotune.races.records import RaceResult, Standing
from autotune.report.phrases import half_width, plain
from autotune.study.shown import shown_config
from autotune.targets.commands.command import Command, is_command
from autotune.units import FAR_APART, counted, format_percent, format_rate, format_seconds, range_phrase

RACE_WIDTH = 80  # characters of a line in a log and on most terminals
ENDED = {"decided": "decided", "rounds": "as many as were asked for", "time": "the time budget is used up"}


def headline(one: Standing, result: RaceResult) -> str:
    """Return the verdict on one contestant in one sentence."""
    name, baseline, ratio = one.label, result.standings[0].label, ratio_phrase(one)
    share = format_percent(result.tolerance)
    match one.verdict:
        case "faster":
            return f"{name} trains faster than {baseline}: {ratio}."
        case "as fast":
            more = " or faster" if (one.ratio or 0.0) > 1 + result.tolerance else ""
            return f"{name} trains as fast as {baseline}{more}, within the tolerance of {share}: {ratio}."
        case "slower":
            return f"{name} trains slower than {baseline}: {ratio}."
    if one.beside_others:
        return f"Other work slowed {name} or {baseline}, so which one is faster is undecided: measured {ratio}."
    return f"It is undecided whether {name} is faster or slower than {baseline} by more than {share}: {ratio}."


def ratio_phrase(one: Standing) -> str:
    """`0.970× (0.962 to 0.978)`: with the three digits that a tolerance of 2 % needs."""
    assert one.ratio is not None and one.ratio_low is not None and one.ratio_high is not None, "not the baseline"
    if one.ratio_low <= 0 or one.ratio_high / one.ratio_low >= FAR_APART:
        return f"{one.ratio:.2g}× ({range_phrase(one.ratio_low, one.ratio_high)})"
    return f"{one.ratio:.3f}× ({one.ratio_low:.3f} to {one.ratio_high:.3f})"


def notes(result: RaceResult) -> list[str]:
    """Return notes on the reliability of the numbers."""
    found = []
    batches = dict.fromkeys(one.global_batch_size for one in result.standings)
    if len(batches) > 1:
        told = " and ".join(map(str, batches))
        found.append(
            f"Rates are per sample; the updates differ: there is one after {told} samples. What is learned per "
            f"sample may differ, too."
        )
    found += _other_training(result)
    found += [
        f"{plain(one.label)} is {one.unstable.text}. How fast it trains says little."
        for one in result.standings
        if one.unstable
    ]
    if result.with_interference:
        rounds = [rate for one in result.standings for rate in one.rounds]
        is_mended = result.probes > len(rounds) or None in rounds
        found.append(
            f"{result.with_interference} of {counted(result.probes, 'probe')} had interference: other "
            f"processes used the machine. "
            + (
                "Where there was time they were repeated, or left out where the remaining rounds could decide."
                if is_mended
                else "None was repeated, for lack of time or of a quiet machine: all of them count."
            )
        )
    if any(one.beside_others for one in result.standings):
        found.append(
            "Others kept contestants from the cores in too many of the rounds that count, so on a quiet machine the "
            "ratio may be another one. Close other work and race again."
        )
    if any(one.verdict == "undecided" and not one.beside_others for one in result.standings):
        more = "--time-budget" if result.ended == "time" else "--rounds"
        found.append(f"More rounds may decide it ({more}), and so may a quieter machine or a larger --tolerance.")
    return found


def _other_training(result: RaceResult) -> list[str]:
    """Return a note if the contestants train different models; else an empty list."""
    models = [(one.model, one.parameter_count) for one in result.standings]
    if not all(name and count is not None for name, count in models):
        return []
    if all(name == _name_of_target(one) for (name, _), one in zip(models, result.standings, strict=True)):
        models = [("", count) for _, count in models]  # containers, which have the names of their files
    if len(set(models)) == 1:
        return []
    told = "; ".join(
        f"{plain(one.label)}: {f'{plain(name)}, ' if name else ''}{count or 0:,} parameters"
        for one, (name, count) in zip(result.standings, models, strict=True)
    )
    return [f"What is trained differs, so the ratio says nothing of how fast the same work is done: {told}."]


def _name_of_target(one: Standing) -> str:
    """Return what an inspection calls a model of this contestant whose class is a mere container."""
    is_run = is_command(one.target)
    label = Command.parse(one.target).label if is_run else PurePath(one.target.partition(":")[0]).name
    return label.removesuffix(".py")


def race_block(result: RaceResult) -> RenderableType:
    """Return the verdicts, a row for each contestant, and the notes."""
    with declaring(*result.declared):
        return _race_block(result)


def _race_block(result: RaceResult) -> RenderableType:
    rows = []
    common = [knob for knob in KNOBS if len({repr(one.config.values.get(knob.name)) for one in result.standings}) > 1]
    for one in result.standings:
        rate = f"{format_rate(one.samples_per_second)} samples/s"
        versus = ratio_phrase(one) if one.verdict else "baseline"
        width = f"± {half_width(one.relative_half_width)}"
        rows.append((plain(one.label), rate, width, versus, shown_config(one.config.values, common)))
    table = Group(*map(Text, _aligned(rows)))
    rounds = max(len(one.rounds) for one in result.standings)
    spent = f"{counted(rounds, 'round')}, {counted(result.probes, 'probe')}, {format_seconds(result.seconds)}"
    lines = [Text(headline(one, result)) for one in result.standings[1:]]
    closing = Text(f"  {spent} ({ENDED[result.ended]}) on {result.environment.device_name} · {result.folder}")
    return Group(*lines, Text(), table, Text(), closing, *(Text(f"  ! {note}") for note in notes(result)))


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table; if a line is too long, its first cell gets a line of its own."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    if 2 + sum(widths) + 2 * (len(widths) - 1) <= RACE_WIDTH:
        return [_joined("  ", row, widths) for row in rows]
    return [line for name, *rest in rows for line in (f"  {name}", _joined("    ", rest, widths[1:]))]


def _joined(indent: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    return f"{indent}{'  '.join(map(set_cell_size, cells, widths))}".rstrip()
