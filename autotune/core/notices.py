"""A notice: what a person should know beside the numbers, as a code with its own numbers. It is worded here alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Set
from string import Formatter
from typing import Any

from autotune.core.codes import COSTLIEST_WARNINGS, Code
from autotune.core.records import Record, Value
from autotune.units import counted, format_bytes, format_rate, format_seconds, format_share

OPTIONAL = re.compile(r"\[([^]]*)\]")


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
    given: dict[str, Value] = {name: _five_digits(value) for name, value in said.items() if _is_finite(value)}
    text = " ".join(_worded(part, said | given, given.keys()) for part in (code.sentence, code.next_step) if part)
    return Notice(code=code, numbers=given, text=text)


def earlier(text: str) -> Notice:
    """Return the notice of a sentence that has no code."""
    return Notice(code=Code.EARLIER, numbers={}, text=text)


def costliest_first(warnings: Iterable[Notice]) -> list[Notice]:
    """Return the warnings in the order of what they cost whoever overlooks them."""
    places = {code: place for place, code in enumerate(COSTLIEST_WARNINGS)}
    return sorted(warnings, key=lambda one: places.get(one.code, len(places)))


def named(template: str) -> set[str]:
    """Return the names of the numbers in a template."""
    return {name for _, name, _, _ in Formatter().parse(template) if name}


def _worded(template: str, numbers: dict[str, Value], given: Set[str]) -> str:
    shown = OPTIONAL.sub(lambda part: part[1] if named(part[1]) <= given else "", template)
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


def _five_digits(value: Value) -> Value:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _is_finite(value: Value) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


_FORMATS = {
    "bytes": format_bytes,
    "rate": format_rate,
    "share": format_share,
    "seconds": format_seconds,
    "batch": _batch,
    "money": _money,
}
_WORDS = _Words()
