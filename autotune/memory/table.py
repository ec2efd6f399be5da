"""The table of `autotune check --memory`: the memory that every micro-batch would need in every arm, and if it fits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.text import Text

from autotune.core.results import Outcome
from autotune.knobs import KNOBS, knob, traded
from autotune.memory.model import ON_DEVICE, ON_HOST, START_MARGIN, Arm, calibrated
from autotune.memory.records import ShapeRun
from autotune.memory.stage import arm_name
from autotune.report.phrases import plain
from autotune.units import format_bytes

FITS, CLOSE, OVER, UNKNOWN = "✓", "?", "✗", "–"
STYLES = {FITS: "green", CLOSE: "yellow", OVER: "red", UNKNOWN: "dim"}
COLUMN_GAP = 3
NOT_SEARCHED = "  not searched: it does not divide the held global batch"


@dataclass(frozen=True, kw_only=True)
class PeakRange:
    """The range of a real process's peak, given the bytes of its tensors.

    On a device nearly all memory is tensors. A host's process holds at least the tensors; its further memory, and the
    factor by which it grows with their bytes, differ between targets, so the upper end is one standard deviation of
    both above the measured ones (decision 0030).
    """

    base_bytes: int  # of the process, without the tensors of training
    on_host: bool

    def least(self, tensors: float) -> float:
        """Return the bytes that the process takes at least, or nearly."""
        return (self.base_bytes + tensors) / (1 if self.on_host else 1 + START_MARGIN)

    def most(self, tensors: float) -> float:
        """Return the bytes that suffice before anything was measured, by the rule of a search."""
        return calibrated(self.base_bytes, (), ON_HOST if self.on_host else ON_DEVICE).most(tensors)

    def cell(self, tensors: float | None, usable_bytes: int) -> tuple[str, str]:
        """Return a peak as text, and a mark that says whether it fits within `usable_bytes`."""
        if tensors is None:
            return "", UNKNOWN
        least, most = self.least(tensors), self.most(tensors)
        sign = FITS if most <= usable_bytes else CLOSE if least <= usable_bytes else OVER
        return _range(least, most) if self.on_host else format_bytes(self.base_bytes + tensors), sign

    def explained(self, usable_bytes: int) -> str:
        """Return a sentence that explains how to read the table."""
        base, may = format_bytes(self.base_bytes), f"{format_bytes(usable_bytes)} may be used"
        if not self.on_host:
            return (
                f"  Predicted from shapes alone, {base} of the process included; {may}. {FITS} fits, {OVER} does not, "
                f"{CLOSE} within {START_MARGIN:.0%} of it.\n"
                f"  A real run may need a little more; `autotune search` measures before it recommends."
            )
        more, ratio = format_bytes(ON_HOST.besides_bytes), f"{ON_HOST.ratio:g} ± {ON_HOST.ratio_spread:g}"
        return (
            f"  Predicted from shapes alone. The lower end is {base} of the process and the tensors, the upper end "
            f"what real\n"
            f"  processes took: {more} more, and {ratio} times their tensors. {may}: {FITS} fits, {OVER} does not,\n"
            f"  {CLOSE} lies between. `autotune search` measures before it recommends."
        )


def memory_block(
    found: ShapeRun, batches: Sequence[int], usable_bytes: int, searched: Collection[int], *, on_host: bool = False
) -> Text:
    """Return the table: micro-batches by arms, with predicted peaks compared with `usable_bytes`.

    Batches that are not among `searched` get no mark: a search would not use them.
    """
    if found.outcome is not Outcome.OK:
        return Text(f"  memory cannot be predicted: {plain(found.why)}", "yellow")
    peak_range = PeakRange(base_bytes=found.base_bytes, on_host=on_host)
    columns = [arm for arm in found.arms if not traded(arm.values)] or list(found.arms)
    trading = [arm for arm in found.arms if arm not in columns]
    trades = {trade for arm in trading for trade in traded(arm.values)}
    known = [arm for arm in columns if arm.points]
    block = Text()
    if known:
        names = [_name(arm, found.arms, but=trades) or "peak" for arm in known]
        _add_peaks(block, names, _rows(known, batches, peak_range, usable_bytes), searched)
    for line in _traded(trading, [batch for batch in batches if batch in searched], peak_range, usable_bytes):
        block.append(f"  {line}\n")
    for arm in found.arms:
        if arm.why:
            block.append(f"  ! {_name(arm, found.arms) or 'peak'}: ", "yellow").append(f"{plain(arm.why)}\n")
    if not known:
        return block.append("  Memory cannot be predicted here; `autotune search` measures it.")
    return block.append(peak_range.explained(usable_bytes))


def _rows(
    arms: Sequence[Arm], batches: Sequence[int], peak_range: PeakRange, usable_bytes: int
) -> dict[int, list[tuple[str, str]]]:
    """Return each arm's peak as text and its mark, by batch, up to the first batch that fits in no arm."""
    rows = {}
    for batch in batches:
        rows[batch] = [peak_range.cell(arm.peak_bytes(batch), usable_bytes) for arm in arms]
        if all(sign == OVER for _, sign in rows[batch]):
            break  # larger batches need no row
    return rows


def _add_peaks(
    block: Text, names: Sequence[str], rows: dict[int, list[tuple[str, str]]], searched: Collection[int]
) -> None:
    """Append the titles, and a line for each batch."""
    widths = [
        max(len(name), *(len(f"{text} {sign}") for text, sign in column)) + COLUMN_GAP
        for name, column in zip(names, zip(*rows.values(), strict=True), strict=True)
    ]
    titles = "".join(name.rjust(width) for name, width in zip(names, widths, strict=True))
    block.append(f"  {'batch':>6}{titles}\n", "dim")
    for batch, row in rows.items():
        block.append(f"  {batch:>6}")
        for (text, sign), width in zip(row, widths, strict=True):
            block.append(text.rjust(width - 2))
            block.append(*((f" {sign}", STYLES[sign]) if batch in searched else ("  ", "")))
        block.append("\n" if batch in searched else f"{NOT_SEARCHED}\n", "dim")


def _range(least: float, most: float) -> str:
    """Return `292-488 MiB`, or `0.9 GiB-1.4 GiB` where the units differ."""
    low, high = format_bytes(least), format_bytes(most)
    number, unit = low.split()
    return f"{number}–{high}" if high.endswith(f" {unit}") else f"{low}–{high}"


def _traded(arms: Sequence[Arm], batches: Sequence[int], peak_range: PeakRange, usable_bytes: int) -> list[str]:
    """Return a line for each trade of time for memory with its largest batch that fits: columns would be too many."""
    fitting: dict[str, list[str]] = {}
    for arm in arms:
        if arm.points:
            trades = traded(arm.values)
            name = " and ".join(knob(trade).phrase(arm.values[trade]) for trade in trades)
            most = max((b for b in batches if peak_range.cell(arm.peak_bytes(b), usable_bytes)[1] == FITS), default=0)
            batches_that_fit = f"{_name(arm, arms, but=trades)} up to {most}".lstrip() if most else ""
            fitting.setdefault(name, []).extend([batches_that_fit] if batches_that_fit else [])
    return [f"with {name} {FITS} {', '.join(some)}" if some else f"with {name}: none" for name, some in fitting.items()]


def _name(arm: Arm, arms: Sequence[Arm], but: Collection[str] = ()) -> str:
    """Return the knobs that differ between arms, without those in `but`, as `bf16 nhwc`; empty if there are none."""
    differ = [
        one
        for one in KNOBS
        if one.name in arm.values and one.name not in but and len({repr(other.values[one.name]) for other in arms}) > 1
    ]
    return arm_name(arm, differ)
