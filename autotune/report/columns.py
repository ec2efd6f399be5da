"""The columns of the table of probes, and their order of omission on a narrow terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.core.records import Config
from autotune.core.results import Measurement
from autotune.knobs import KNOBS
from autotune.knobs.base import TACIT, Knob
from autotune.knobs.changes import BATCH_KNOBS
from autotune.knobs.choice_knob import ChoiceKnob
from autotune.report.phrases import half_width
from autotune.study.shown import shown_value
from autotune.units import format_bytes, format_rate, format_share

RESULT_ROOM = 14  # characters kept for the result at the end of a line: "out of memory", "best so far"
GAP = "  "
UNKNOWN = "–"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: `cell` writes a probe's configuration and, if there is one, its measurement."""

    title: str
    width: int  # characters; a longer cell pushes the line out rather than lose a digit
    cell: Callable[[Config, Measurement | None], str]
    left: bool = False
    gives_way: bool = False  # is left out first: a knob that most people do not set

    def pad(self, text: str) -> str:
        """Return `text` padded to the column's width."""
        return text.ljust(self.width) if self.left else text.rjust(self.width)


def columns(knobs: Sequence[Knob] = KNOBS) -> tuple[Column, ...]:
    """Return all columns from the configuration to the measurement; the batch always has one."""
    batch = [knob for knob in KNOBS if knob.name in BATCH_KNOBS]
    others = [knob for knob in knobs if knob.name not in BATCH_KNOBS]
    return (
        Column(
            title="×".join(knob.label for knob in batch),
            width=11,
            cell=lambda config, _: "".join(shown_value(knob, config.values) for knob in batch),
        ),
        *(_knob_column(knob) for knob in others),
        Column(title="samples/s", width=9, cell=lambda _, one: format_rate(one.samples_per_second) if one else UNKNOWN),
        Column(title="±", width=4, cell=lambda _, one: half_width(one.relative_half_width if one else None)),
        Column(
            title="peak", width=8, cell=lambda _, measured: format_bytes(measured.memory.bytes) if measured else UNKNOWN
        ),
        Column(
            title="wait",
            width=4,
            cell=lambda _, measured: format_share(measured.data_wait_share) if measured else UNKNOWN,
        ),
    )


def fitting_columns(offered: Sequence[Column], width: int | None) -> tuple[Column, ...]:
    """Return the columns that fit into `width` characters beside number and result; None: all columns.

    These are left out in turn: knobs that most people do not set, the spread, knobs from the last of the registry on,
    the wait, and the second knob after the batch. The batch, the first knob, the throughput and the peak always stay.
    """
    if width is None:
        return tuple(offered)
    rare = [column for column in offered if column.gives_way]
    knobs, (_, spread, _, wait) = [column for column in offered[1:-4] if not column.gives_way], offered[-4:]
    kept = list(offered)
    for column in (*reversed(rare), spread, *reversed(knobs[2:]), wait, *knobs[1:2]):
        if line_width(kept) + RESULT_ROOM <= width:
            break
        kept.remove(column)
    return tuple(kept)


def line_width(shown_columns: Sequence[Column]) -> int:
    """Return the characters of a line before the result."""
    return 3 + sum(len(GAP) + column.width for column in shown_columns) + len(GAP)


def header(shown_columns: Sequence[Column]) -> str:
    """Return the line of titles, without the result's."""
    return GAP.join(["  #", *(column.pad(column.title) for column in shown_columns), "result"])


def cells(shown_columns: Sequence[Column], number: int, config: Config, measured: Measurement | None) -> str:
    """Return the line of a probe, without the result."""
    return GAP.join([f"{number:>3}", *(column.pad(column.cell(config, measured)) for column in shown_columns), ""])


def _knob_column(knob: Knob) -> Column:
    choices = knob.choices.values() if isinstance(knob, ChoiceKnob) else ()
    return Column(
        title=knob.label,
        width=max(5, len(knob.label), *map(len, choices)),
        cell=lambda config, _: shown_value(knob, config.values),
        gives_way=knob.show(knob.default) in TACIT,
    )
