"""Bytes, seconds, rates and shares: read from what people type, written with the digits that the spread supports."""

from __future__ import annotations

import math
import re

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_BYTES |= {
    unit: 1 << 10 * power
    for power, units in enumerate(("k kib", "m mib", "g gib", "t tib"), 1)
    for unit in units.split()
}


def parse_seconds(text: str) -> float:
    """Seconds in `90`, `90s`, `10m`, `1.5h` or `1h30m`. Raises `ValueError` with the accepted forms."""
    compact = text.strip().lower().replace(" ", "")
    parts = re.findall(r"([0-9]*\.?[0-9]+)(min|[smh]?)", compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(f"{text!r} is not a duration: write 90s, 10m or 1h30m")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not 0 < seconds < math.inf:
        raise ValueError(f"{text!r} is not a duration above zero")
    return seconds


def parse_bytes(text: str, total: int | None = None) -> int:
    """Bytes in `8GiB`, `8000MB`, `123456` or, of `total`, `90%`. Raises `ValueError` with the accepted forms."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(%|[a-zA-Z]*)\s*", text)
    if not match or (match[2] != "%" and match[2].lower() not in _BYTES):
        raise ValueError(f"{text!r} is not an amount of memory: write 8GiB, 8000MB or 90%")
    number = float(match[1])
    if match[2] == "%":
        if not 0 < number <= 100:
            raise ValueError(f"{text!r} is not a share of the memory: write more than 0% and at most 100%")
        if total is None:
            raise ValueError(f"{text!r} is a share, and here an amount is needed: write 8GiB or 8000MB")
        return int(total * number / 100)
    if number <= 0:
        raise ValueError(f"{text!r} is not an amount of memory above zero")
    return int(number * _BYTES[match[2].lower()])


def parse_fraction(text: str) -> float:
    """A fraction in `8%` or `0.08`, at least 0 and below 1. Raises `ValueError`."""
    try:
        fraction = float(text[:-1]) / 100 if text.strip().endswith("%") else float(text)
    except ValueError:
        fraction = math.nan
    if not 0 <= fraction < 1:
        raise ValueError(f"{text!r} is not a share: write 8% or 0.08")
    return fraction


def parse_price(text: str) -> float:
    """An amount of money in `2.49` or `1,200`. Raises `ValueError`."""
    try:
        price = float(text.replace(",", ""))
    except ValueError:
        price = math.nan
    if not 0 < price < math.inf:
        raise ValueError(f"{text!r} is not a price above zero: write 2.49, without the currency")
    return price


def format_bytes(count: float | None) -> str:
    """`48.3 GiB`, `512 MiB`, `–` if unknown."""
    if count is None:
        return "–"
    if count >= 2**30:
        return f"{count / 2**30:.3g} GiB" if count < 1000 * 2**30 else f"{count / 2**30:,.0f} GiB"
    return f"{count / 2**20:.0f} MiB"


UNKNOWN_SPREAD = 0.02  # where a spread is not known: that of one probe on a quiet machine


def format_rate(rate: float, relative_spread: float | None = None) -> str:
    """A rate with the digits that its relative spread supports: 2605.4 at 1 % is `2,610`, at 0.1 % `2,605`.

    However wide the spread, one digit stays: a measured rate is never written as 0.
    """
    if rate <= 0 or not math.isfinite(rate):
        return f"{rate:g}"
    spread = UNKNOWN_SPREAD if relative_spread is None else relative_spread
    uncertain = rate * min(max(spread, 1e-4), 0.5)
    digits = math.floor(math.log10(uncertain))
    rounded = round(rate, -digits)
    return f"{rounded:,.{max(0, -digits)}f}"


def format_seconds(seconds: float) -> str:
    """`0.8 s`, `42 s`, `5:12 min`, `2:20 h`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes}:{rest:02d} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d} h"


def format_share(share: float) -> str:
    """`9%`, `0.4%`."""
    return f"{share:.0%}" if share >= 0.0095 or share == 0 else f"{share:.1%}"
