"""The table of `autotune check --memory`: what every micro-batch would need in every arm, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from autotune.forecast import Arm, Calibration, DryRun
from autotune.knobs import KNOBS
from autotune.report.phrases import plain
from autotune.results import Outcome
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
    known = [arm for arm in found.arms if arm.points]
    names = [_name(arm, found.arms) for arm in known]
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
    for arm in found.arms:
        if arm.reason:
            block.append(f"  ! {_name(arm, found.arms)}: ", "yellow").append(f"{plain(arm.reason)}\n")
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


def _name(arm: Arm, arms: Sequence[Arm]) -> str:
    """`bf16 nhwc`: the knobs that differ between arms."""
    differ = [
        knob for knob in KNOBS if knob.name in arm.values and len({repr(one.values[knob.name]) for one in arms}) > 1
    ]
    return " ".join(knob.show(arm.values[knob.name]) for knob in differ) or "peak"
