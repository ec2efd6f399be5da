"""The text about a slow line for the user: what was seen, what to write instead, and what was measured without it."""

from __future__ import annotations

from autotune.core.notices import Number, named, worded
from autotune.core.records import Value
from autotune.core.slow_line_sentences import SLOW_LINE_TEXTS
from autotune.profile.records import REPLAYED_STEPS, SlowLine
from autotune.units import format_ms

MOST_SPREAD = 10.0  # times the line's seconds: a wider interval around 0 does not determine its gain


def numbers_of(one: SlowLine) -> dict[str, Number]:
    """Return the numbers that the sentence of its kind names, as the record has them: `count` and `bytes` a step."""
    said = named(SLOW_LINE_TEXTS[one.kind].seen)
    found: dict[str, Value] = {
        "what": one.what, "count": one.count, "bytes": one.bytes, "steps_left": one.steps_left, "ratio": one.ratio,
    }  # fmt: skip
    return {name: value for name, value in found.items() if name in said and value is not None}


def seen(one: SlowLine) -> str:
    """Return what was seen, for a sentence that begins with the line."""
    numbers = numbers_of(one)
    return worded(SLOW_LINE_TEXTS[one.kind].seen, numbers, numbers.keys())


def instead(one: SlowLine) -> str:
    """Return the advice what to write instead of the slow line."""
    return SLOW_LINE_TEXTS[one.kind].instead


def tried(one: SlowLine) -> str:
    """Return in a clause what was measured without the line; empty if that was not asked for."""
    if one.unverified:
        return f"not verified: {one.unverified}"
    if (gain := one.gain) is None:
        return ""
    if gain.low < 0 and gain.high - gain.low > MOST_SPREAD * one.seconds:
        return "not verified: steps with and without it differ too much, probably because of other work"
    between = f"{format_ms(gain.low)} to {format_ms(gain.high)}"
    if gain.low <= 0:
        found = f"without it no faster for sure (measured, {between} ms a step)"
    else:
        found = f"without it {format_ms(gain.seconds)} ms faster a step (measured, {between})"
    same = f"; the same losses in {REPLAYED_STEPS} steps" if gain.same_losses else ""
    return found + same + (f"; gives up {gain.gives_up}" if gain.gives_up else "")
