"""Bytes, seconds, rates and shares: read from what people type, written with as many digits as people compare."""

from __future__ import annotations

import math
import re

FAR_APART = 10.0  # times the lower end of an interval: it then shows neither whether there is a gain, nor how much
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_NEXT = {"h": "m", "m": "s", "min": "s"}  # the unit of a last number without one: 1h30 is 1 h 30 min
_BYTES = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_BYTES |= {
    unit: 1 << 10 * power
    for power, units in enumerate(("k kib", "m mib", "g gib", "t tib"), 1)
    for unit in units.split()
}

MOST_NUMBER_CHARACTERS = 40  # characters; a longer number cannot be meant


def parse_seconds(text: str) -> float:
    """Return the seconds of `90s`, `10m`, `1.5h`, `1h30m` or `1h30`. Raises `ValueError` with the accepted forms.

    A number without a unit is refused, because 2 may mean minutes.
    """
    parts = re.findall(r"([0-9]*\.?[0-9]+)\s*(min|[smh]?)", text.lower())
    if not parts or "".join(number + unit for number, unit in parts) != "".join(text.lower().split()):
        raise ValueError(f"{text!r} is not a duration: write 90s, 10m or 1h30m")
    last, before = parts[-1][0], [unit for _, unit in parts[:-1]]
    if not parts[-1][1] and before:
        parts[-1] = (last, _NEXT.get(before[-1], ""))
    if not all(unit for _, unit in parts):
        raise ValueError(f"{text!r} has no unit: write {last}s for seconds or {last}m for minutes")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not 0 < seconds < math.inf:
        raise ValueError(f"{text!r} is not a duration above zero")
    return seconds


def parse_bytes(text: str, total: int | None = None) -> int:
    """Return the bytes of `8GiB`, `8000MB`, `123456` or, of `total`, `90%`. Raises `ValueError` with the forms."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(%|[a-zA-Z]*)\s*", text)
    if not match or (match[2] != "%" and match[2].lower() not in _BYTES):
        raise ValueError(f"{text!r} is not an amount of memory: write 8GiB, 8000MB or 90%")
    number = float(match[1])
    if match[2] == "%":
        if not 0 < number <= 100:
            raise ValueError(f"a share of the memory must be above 0% and at most 100%, got {number:g}%: write 90%")
        if total is None:
            raise ValueError(f"{text!r} is a share, and here an amount is needed: write 8GiB or 8000MB")
        return int(total * number / 100)
    amount = number * _BYTES[match[2].lower()]
    if not 0 < amount < math.inf:
        raise ValueError(
            f"{text[:MOST_NUMBER_CHARACTERS]!r} is not an amount of memory above zero that a machine could have"
        )
    return int(amount)


def parse_fraction(text: str) -> float:
    """Return the fraction of `8%` or `0.08`, in [0, 1). Raises `ValueError` with the rule and the value."""
    number, percent, rest = text.strip().partition("%")
    try:
        fraction = float(number) / 100 if percent else float(number)
    except ValueError:
        fraction = math.nan
    if rest or not math.isfinite(fraction):
        raise ValueError(f"{text[:MOST_NUMBER_CHARACTERS]!r} is not a share: write 8% or 0.08")
    if not 0 <= fraction < 1:
        likely = float(number) if 1 <= float(number) < 100 else 8.0  # 10 probably means 10%
        got = format_percent(fraction)
        raise ValueError(f"a share must be between 0% and 100%, got {got}: write {likely:g}% or {likely / 100:g}")
    return fraction


def parse_number(text: str) -> float:
    """Return the number of `95` or `99.9`. Raises `ValueError`."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number: write 95 or 99.9") from None


def format_value(value: object) -> str:
    """Return `95`, `99.9`; any other value in Python's notation."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def significant(value: float) -> float:
    """Return a value with five digits: more than any spread supports, few enough to read."""
    return float(f"{value:.5g}")


def format_bytes(count: float | None) -> str:
    """Return `48.3 GiB`, `512 MiB`, `300 KiB`, `200 B`; `–` if unknown."""
    if count is None:
        return "–"
    if abs(count) >= 2**30:
        return f"{count / 2**30:.3g} GiB" if abs(count) < 1000 * 2**30 else f"{count / 2**30:,.0f} GiB"
    if 0 < abs(count) < 2**20:  # growth by this in each step is much in the end, and must not read 0 MiB
        return f"{count / 2**10:.0f} KiB" if abs(count) >= 2**10 else f"{count:.0f} B"
    return f"{count / 2**20:.0f} MiB"


def format_ms(seconds: float) -> str:
    """Return the milliseconds without their unit, with the digits of a rate: `1.23`."""
    shown = format_rate(1000 * abs(seconds)) if seconds else "0"
    return f"-{shown}" if seconds < 0 else shown


def format_rate(rate: float) -> str:
    """Return a rate with three digits, always, so that the ratio of two of them agrees with the factor beside them.

    Examples are `2,610` and `12.3`. An interval shows how precise it is; an omitted digit would look like a zero.
    """
    if rate <= 0 or not math.isfinite(rate):
        return f"{rate:g}"
    shown = rounded(rate)
    return f"{shown:,.{max(0, 2 - math.floor(math.log10(shown)))}f}"


def format_durations(*seconds: float) -> str:
    """Return durations in the unit of the longest, three digits each: `68.1 → 34.7 ms`; in minutes from 100 s on."""
    longest = max(seconds)
    if longest >= 99.95:
        return " → ".join(map(format_seconds, seconds))
    factor, unit = (1000, "ms") if longest < 0.9995 else (1, "s")
    return f"{' → '.join(format_rate(factor * one) for one in seconds)} {unit}"


def format_clock(seconds: float) -> str:
    """Return minutes and seconds of a running time: `5:12`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


def rounded(rate: float) -> float:
    """Return a rate rounded to the digits that are shown."""
    return float(f"{rate:.3g}")


def format_speedup(factor: float) -> str:
    """Return a factor with three digits: `1.08`, `17.1`, `120`; below 0.1 with two: `0.042`."""
    if 0 < factor < 0.0995:
        return f"{factor:.2g}"
    return f"{factor:.{2 if factor < 10 else 1 if factor < 100 else 0}f}"


def format_end(factor: float) -> str:
    """Return an end of an interval of factors, with digits enough to see on which side of 1 it lies: `0.997`."""
    text = format_speedup(factor)
    return f"{factor:.{-math.floor(math.log10(abs(factor - 1)))}f}" if float(text) == 1 != factor else text


def range_phrase(low: float | None, high: float | None) -> str:
    """Return `16.7 to 17.5`, the ends of an interval of factors; empty if one of them is unknown.

    If one end is ten times the other, the interval says nothing: return `not known within a factor of 10`.
    """
    if low is None or high is None or not math.isfinite(high):
        return ""
    if low <= 0:
        return "not known"
    if high / low >= FAR_APART:
        return f"not known within a factor of {FAR_APART:g}"  # a larger factor would not help
    end = format_end if low > 1 or high < 1 else format_speedup  # what is faster or slower does not reach 1
    return f"{end(low)} to {end(high)}"


def format_count(number: int) -> str:
    """Return a large number in thousands, millions or billions: `25.6 M`."""
    for size, unit in ((10**9, " B"), (10**6, " M"), (10**3, " k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)


def counted(count: int, kind: str) -> str:
    """Return a count with its noun: `1 probe`, `1,200 probes`, `2 batches`."""
    return f"{count:,} {kind}{'' if count == 1 else 'es' if kind.endswith(('ch', 'ss')) else 's'}"


def format_seconds(seconds: float) -> str:
    """Return `4.2 ms`, `0.84 s`, `5.6 s`, `42 s`, `5:12 min`; from an hour on `1:30 h`."""
    if 0 < seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if 0 <= seconds < 0.995:
        return f"{seconds:.2g} s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}:{minutes:02d} h"


def format_percent(share: float) -> str:
    """Return a share as it would be typed, without rounding: `10%`, `2.5%`, `1000%`."""
    return f"{100 * share:.6g}%"


def format_difference(share: float) -> str:
    """Return by how much one rate is above another: `17%`, `4.2%`, `less than 0.1%`, with one decimal below 10 %.

    No interval supports more digits; with fewer, 1.5 % would read as 2 %, which is a threshold.
    """
    if 0 <= share < 0.0005:
        return "less than 0.1%"
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"


def format_share(share: float) -> str:
    """Return a share, given as a fraction, in per cent: `9%`, `0.4%`, `-12%`; `100%` only for all of it: `99.6%`."""
    if 0.995 <= share < 1:
        return f"{min(share, 0.999):.1%}"
    return f"{share:.1%}" if 0.0005 <= abs(share) < 0.0095 else f"{share:.0%}".replace("-0%", "0%")
