"""The texts that a user writes about a knob: its name, one value, the values to search.

This is the only parser for command line, target and `autotune.search`. Errors are `ValueError` with rule and value; the
caller adds where the text was written.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from autotune.core.records import Limit, Value
from autotune.knobs import KNOBS, is_ours, knob
from autotune.knobs.base import Knob
from autotune.knobs.declared import json_value, text

MOST_OWNERS = 2  # knobs with the same value, for which a value still tells the knob


def option(name: str) -> str:
    """Return the option that limits the knob on the command line: `--batch`; of a user's own `--fix attn`."""
    try:
        one = knob(name)
    except KeyError:
        return f"--fix {name}"
    return f"--{one.alias.replace('_', '-')}" if is_ours(one.name) else f"--fix {name}"


def typed(values: Mapping[str, Value]) -> str:
    """Return the settings as --fix and --config take them: `threads=1,amp=none`."""
    return ",".join(f"{_alias(name)}={text(value)}" for name, value in values.items())


def _alias(name: str) -> str:
    return knob(name).alias if is_ours(name) else name


def full_name(name: str) -> str:
    """Return the name of the knob with that name or alias."""
    try:
        return knob(name).name
    except KeyError:
        if heading := heading_hint(name) or value_hint(name):
            raise ValueError(f"there is no knob {name!r}. {heading}") from None
        called = {k.label: k.name for k in KNOBS} | {one: one for k in KNOBS for one in (k.name, k.alias)}
        near = difflib.get_close_matches(name, called, n=1)
        there = ", ".join(k.name if k.alias == k.name else f"{k.name} ({k.alias})" for k in KNOBS)
        hint = f"Did you mean {called[near[0]]}?" if near else f"Use one of {there}."
        raise ValueError(f"there is no knob {name!r}. The name was probably mistyped. {hint}") from None


def heading_hint(name: str) -> str:
    """Return which knob has `name` as the heading of its column, or share one, in sentences; empty: none has."""
    headings = {one.label: one.name for one in KNOBS}
    found = [headings.get(part.strip(), "") for part in name.split("×")]
    if not all(found):
        return ""
    if len(found) > 1:
        return f"It is the column heading of several knobs. Write them one by one: {', '.join(found)}."
    return f"It is the column heading of the knob {found[0]}. Write {found[0]}."


def value_hint(text: str) -> str:
    """Return of which knobs `text` is a value, and how that is written, in sentences; empty: of none, or of many.

    A number or a word such as `none` is a value of many knobs and names none.
    """
    found = [one.alias for one in KNOBS if not one.ordered and _is_value(one, text)]
    if text.isdigit() or not 0 < len(found) <= MOST_OWNERS:
        return ""
    written = " or ".join(f"{alias}={text}" for alias in found)
    return f"It is a value of {' and '.join(found)}. Write {' or '.join(found)}; with the value, {written}."


def _is_value(one: Knob, text: str) -> bool:
    try:
        one.parse(text)
    except ValueError:
        return False
    return True


def asked_name(name: str, may_declare: Callable[[str], bool]) -> str:
    """Return the full name of a knob, or `name` itself if the target may declare one of that name.

    Raises `ValueError` as `full_name` does.
    """
    try:
        return full_name(name)
    except ValueError:
        if name.isidentifier() and may_declare(name):
            return name
        raise


def checked_value(name: str, value: Any) -> Value:
    """Return `value`, of a type that JSON has, if the knob can apply it."""
    value = json_value(value)
    knob(name).check(value)
    return value  # type: ignore[no-any-return]  # `check` knows the types of its knob


def limit(name: str, allowed: Any) -> Limit:
    """Return a limit written in Python: a tuple of two whole numbers is a range if the knob is ordered.

    Any other collection lists values; a single value is the only one.
    """
    if isinstance(allowed, tuple) and [type(end) for end in allowed] == [int, int] and knob(name).ordered:
        return range_between(name, *allowed)
    if isinstance(allowed, set | frozenset):  # which has another order in each process; a study is known by its own
        allowed = sorted(allowed, key=lambda value: (value if isinstance(value, int) else 0, repr(value)))
    return listed(name, allowed if isinstance(allowed, list | tuple | range) else (allowed,))


def range_between(name: str, low: Value, high: Value) -> Limit:
    """Return the range from `low` to `high`, both included; None: no bound on that side."""
    for end in (low, high):
        if end is not None:
            checked_value(name, end)
    if low is not None and high is not None and int(low) > int(high):
        raise ValueError(f"the range of {name} from {low} to {high} is empty, its ends are swapped")
    return Limit(low=None if low is None else int(low), high=None if high is None else int(high))


def listed(name: str, values: Iterable[Any]) -> Limit:
    """Return the limit of the knob `name` to exactly these values."""
    found = tuple(checked_value(name, value) for value in values)
    if not found:
        raise ValueError(f"{name} has no value left: list at least one, or leave the knob out")
    return Limit(values=found)
