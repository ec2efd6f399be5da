"""The table of `autotune check --memory`: what every micro-batch would need in every arm, and whether it fits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.text import Text

from autotune.forecast import Arm, Calibration, DryRun
from autotune.knobs import KNOBS, knob, traded
from autotune.report.phrases import plain
from autotune.results import Outcome
from autotune.tuning.foretelling import arm_name
from autotune.units import format_bytes

FITS, CLOSE, OVER, UNKNOWN = "✓", "?", "✗", "–"
STYLES = {FITS: "green", CLOSE: "yellow", OVER: "red", UNKNOWN: "dim"}
GAP = 3


def memory_block(found: DryRun, batches: Sequence[int], usable_bytes: int) -> Text:
    """Rows are micro-batches, columns arms; peaks are predicted, and held against `usable_bytes`."""
    if found.outcome is not Outcome.OK:
        why = found.failure.message if found.failure else found.outcome.value
        return Text(f"  memory cannot be foretold: {plain(why)}", "yellow")
    calibration = Calibration(offset_bytes=found.base_bytes)
    columns = [arm for arm in found.arms if not traded(arm.values)] or list(found.arms)
    trading = [arm for arm in found.arms if arm not in columns]
    trades = {trade for arm in trading for trade in traded(arm.values)}
    known = [arm for arm in columns if arm.points]
    names = [_name(arm, found.arms, but=trades) or "peak" for arm in known]
    cells = []
    for batch in batches:
        cells.append([_cell(arm.peak_bytes(batch), calibration, usable_bytes) for arm in known])
        if all(sign == OVER for _, sign in cells[-1]):
            break  # the larger ones need no row
    block = Text()
    if known:
        widths = [
            max(len(name), *(len(f"{text} {sign}") for text, sign in column)) + GAP
            for name, column in zip(names, zip(*cells, strict=True), strict=True)
        ]
        titles = "".join(name.rjust(width) for name, width in zip(names, widths, strict=True))
        block.append(f"  {'batch':>6}{titles}\n", "dim")
        for batch, row in zip(batches, cells, strict=False):
            block.append(f"  {batch:>6}")
            for (text, sign), width in zip(row, widths, strict=True):
                block.append(text.rjust(width - 2)).append(f" {sign}", STYLES[sign])
            block.append("\n")
    for line in _traded(trading, batches, calibration.within(usable_bytes)):
        block.append(f"  {line}\n")
    for arm in found.arms:
        if arm.reason:
            block.append(f"  ! {_name(arm, found.arms) or 'peak'}: ", "yellow").append(f"{plain(arm.reason)}\n")
    if not known:
        return block.append("  Memory cannot be foretold here; `autotune search` measures it.")
    return block.append(
        f"  Predicted from shapes alone, {format_bytes(found.base_bytes)} of the process included; "
        f"{format_bytes(usable_bytes)} may be used. {FITS} fits, {OVER} does not, "
        f"{CLOSE} within {calibration.margin:.0%} of it.\n"
        f"  A real run may need a little more; `autotune search` measures before it recommends."
    )


def _cell(tensors: float | None, calibration: Calibration, usable_bytes: int) -> tuple[str, str]:
    if tensors is None:
        return "", UNKNOWN
    if calibration.cautious(tensors) <= usable_bytes:
        sign = FITS
    else:
        sign = CLOSE if calibration.real(tensors) <= usable_bytes * (1 + calibration.margin) else OVER
    return format_bytes(calibration.real(tensors)), sign


def _traded(arms: Sequence[Arm], batches: Sequence[int], enough_bytes: float) -> list[str]:
    """For each trade of time for memory up to which batch it fits: a table of everything would be too wide."""
    fitting: dict[str, list[str]] = {}
    for arm in arms:
        if arm.points:
            trades = traded(arm.values)
            name = " and ".join(knob(trade).phrase(arm.values[trade]) for trade in trades)
            most = max((batch for batch in batches if (arm.peak_bytes(batch) or 0.0) <= enough_bytes), default=0)
            said = f"{_name(arm, arms, but=trades)} up to {most}".lstrip() if most else ""
            fitting.setdefault(name, []).extend([said] if said else [])
    return [f"with {name} {FITS} {', '.join(some)}" if some else f"with {name}: none" for name, some in fitting.items()]


def _name(arm: Arm, arms: Sequence[Arm], but: Collection[str] = ()) -> str:
    """`bf16 nhwc`: the knobs that differ between arms, `but` some; empty if there are none."""
    differ = [
        one
        for one in KNOBS
        if one.name in arm.values and one.name not in but and len({repr(other.values[one.name]) for other in arms}) > 1
    ]
    return arm_name(arm, differ)
