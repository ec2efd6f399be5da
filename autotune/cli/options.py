"""What people type for options, turned into records; every mistake names the option and the accepted forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from autotune.errors import UsageError
from autotune.knobs import KNOBS, knob
from autotune.records import Limit, Value

T = TypeVar("T")
WHENCE = "It was probably mistyped: on the command line, in an AUTOTUNE_ variable, or in a settings file."


def parsed(option: str, text: str | None, parse: Callable[[str], T]) -> T | None:
    """`parse(text)`, with the option named if it fails; None for no text."""
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}. {WHENCE} Correct it, or leave it out.") from error


def limit(option: str, text: str | None, name: str) -> dict[str, Limit]:
    """`8:512`, `8:`, `:512`, or a list `16,32,64`, as the limit of knob `name`; empty for no text."""
    if text is None:
        return {}
    low, colon, high = text.partition(":")
    if not colon:
        return {name: Limit(values=tuple(knob_value(f"{option} {text}", name, part) for part in text.split(",")))}
    bounds = [int(str(knob_value(f"{option} {text}", name, part))) if part.strip() else None for part in (low, high)]
    if None not in bounds and bounds[0] > bounds[1]:  # type: ignore[operator]  # neither is None here
        raise UsageError(f"{option} {text}: the range is empty. The ends are probably swapped. Write {high}:{low}.")
    return {name: Limit(low=bounds[0], high=bounds[1])}


def knob_value(typed: str, name: str, text: str) -> Value:
    """One value of knob `name`; `typed` is the whole option that it stands in."""
    try:
        return knob(name).parse(text.strip())
    except ValueError as error:
        raise UsageError(f"{typed}: {error}. {WHENCE} `autotune search --help` shows how it is written.") from error


def pairs(option: str, text: str | None) -> dict[str, Value]:
    """`batch=64,amp=bf16` as knob values by full name; empty for no text."""
    values: dict[str, Value] = {}
    for pair in text.split(",") if text else ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"{option} {text}: {pair!r} has no value. {WHENCE} Write knob=value: batch=64,amp=bf16.")
        full = known(option, name.strip())
        values[full] = knob_value(f"{option} {text}", full, value)
    return values


def names(option: str, text: str | None) -> tuple[str, ...] | None:
    """`batch,workers` as full knob names; None for no text."""
    return None if text is None else tuple(known(option, part.strip()) for part in text.split(","))


def known(option: str, name: str) -> str:
    """The full name of a knob given by name or alias."""
    try:
        return knob(name).name
    except KeyError:
        there = ", ".join(k.name if k.alias == k.name else f"{k.name} ({k.alias})" for k in KNOBS)
        raise UsageError(
            f"{option}: there is no knob {name!r}. The name was probably mistyped. Knobs: {there}."
        ) from None


def global_batch(text: str | None) -> int | Literal["keep", "free"] | None:
    """`keep`, `free` or a number of samples."""
    if text is None or text == "keep" or text == "free":
        return text  # type: ignore[return-value]  # narrowed by the comparison
    if not text.isdigit() or int(text) < 1:
        raise UsageError(
            f"--global-batch {text} is neither a number of samples nor keep nor free. {WHENCE} Write "
            f"--global-batch 256 to hold that many, keep to hold the baseline's, free to search it."
        )
    return int(text)
