"""A notice: what a person should know beside the numbers, as a code with its own numbers. It is worded here alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Set
from string import Formatter
from typing import Any

from autotune.core.codes import Code
from autotune.core.records import Record, Value
from autotune.units import (
    counted,
    format_bytes,
    format_difference,
    format_rate,
    format_seconds,
    format_share,
    significant,
)

OPTIONAL = re.compile(r"\[([^]]*)\]")
# What is not in it costs least. First what spoils the model or ends the training.
COSTLIEST_WARNINGS = (
    Code.CODE_CHANGED, Code.PRECISION_UNDECIDED, Code.LOSSES_UNJUDGED, Code.MEMORY_GROWS, Code.SAMPLES_REPEATED,
    Code.GLOBAL_BATCH_CHANGED, Code.GLOBAL_BATCH_CHANGED_NOISE_SCALE, Code.BATCH_NORM,
    Code.LARGEST_BATCH_UNTRIED, Code.LARGEST_BATCH_UNTRIED_OWN_LOOP,
    # then what makes the answer doubtful or leaves speed on the table, then what is good to know
    Code.ONLY_BASELINE_TRIED, Code.NOT_CONFIRMED, Code.DIFFERS_ELSEWHERE,
    Code.CONFIRMATION_INTERFERENCE, Code.INTERFERENCE_THROUGHOUT, Code.RATES_SPREAD,
    Code.FAULTS_SPREAD,
    Code.LOADER_BOUND, Code.LOADER_BOUND_SEARCH_SHORT, Code.LOADER_BOUND_WORKERS_OPEN,
    Code.LOADER_BOUND_WORKERS_FIXED, Code.LOADER_BOUND_WORKERS_TRIED,
    Code.RANKS_UNEVEN, Code.RANKS_MEMORY_UNEVEN, Code.COMMUNICATION_EXPOSED,
    Code.LOADER_BOUND_COMMAND, Code.NOISE_SCALE_UNKNOWN, Code.NOISE_SCALE_EARLY, Code.SYNTHETIC_BATCHES,
    Code.NOTHING_COMPILED, Code.COMPILED_IN_WINDOW, Code.PROBES_LEFT_OUT, Code.PAUSES_LEFT_OUT,
)  # fmt: skip


class Notice(Record, frozen=True, kw_only=True):
    """One warning or reason. A program reads `code` and `numbers`, a person reads `text`."""

    code: Code
    numbers: dict[str, Value]  # by the names in the sentence of the code, units in the names
    text: str = ""  # the sentence and its next step

    @classmethod
    def upgraded(cls, content: Any) -> Any:
        """Take the sentence that an earlier version wrote in place of the record; None where it was empty."""
        if isinstance(content, str):
            return {"code": Code.EARLIER, "numbers": {}, "text": content} if content else None
        return super().upgraded(content)


def notice(code: Code, **numbers: Value) -> Notice:
    """Return the notice with its text. What needs a number that is None, or is not finite, is left out of the text.

    Such a number is not given: JSON has none of them. A sentence that cannot do without it says inf or nan. The others
    keep five digits, as in the rest of an answer.
    """
    said: dict[str, Value] = {name: value for name, value in numbers.items() if value is not None}
    given: dict[str, Value] = {
        name: significant(value) if isinstance(value, float) else value
        for name, value in said.items()
        if not isinstance(value, float) or math.isfinite(value)
    }
    text = " ".join(_worded(part, said | given, given.keys()) for part in (code.sentence, code.next_step) if part)
    return Notice(code=code, numbers=given, text=text)


def costliest_first(warnings: Iterable[Notice]) -> list[Notice]:
    """Return the warnings in the order of what they cost whoever overlooks them."""
    places = {code: place for place, code in enumerate(COSTLIEST_WARNINGS)}
    return sorted(warnings, key=lambda one: places.get(one.code, len(places)))


def named(sentence: str) -> set[str]:
    """Return the names of the numbers in a sentence."""
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


def _worded(sentence: str, numbers: dict[str, Value], given: Set[str]) -> str:
    shown = OPTIONAL.sub(lambda part: part[1] if named(part[1]) <= given else "", sentence)
    return _WORDS.vformat(shown, (), numbers)


class _Words(Formatter):
    """Python's formats, and those of `units`: `{peak_bytes:bytes}`, `{count:counted probe}`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        kind, _, noun = format_spec.partition(" ")
        if kind == "counted":
            return counted(value, noun)
        return _FORMATS[kind](value) if kind in _FORMATS else str(format(value, format_spec))


def _batch(samples: float) -> str:
    """Two digits: more than any interval of the noise scale supports."""
    return f"{float(f'{samples:.2g}'):,.3g}" if samples < 1000 else f"{float(f'{samples:.2g}'):,.0f}"


def _money(amount: float) -> str:
    """Two decimals, and three digits where it is less than one."""
    return f"{amount:,.2f}" if abs(amount) >= 1 else f"{amount:.3g}"


def _growth(count: float) -> str:
    """Bytes as everywhere, but in KiB below 1 MiB, because a growth must not be shown as 0."""
    return f"{count / 2**10:.0f} KiB" if count < 2**20 else format_bytes(count)


_FORMATS = {
    "bytes": format_bytes,
    "growth": _growth,
    "rate": format_rate,
    "share": format_share,
    "difference": format_difference,
    "seconds": format_seconds,
    "batch": _batch,
    "money": _money,
}
_WORDS = _Words()
