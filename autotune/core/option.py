"""The description of one option of a search: command line, variable, settings file and checks follow from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from numbers import Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from autotune.units import format_value, parse_number


@dataclass(frozen=True, kw_only=True)
class Option:
    """The description of an option beyond its field's type; `described` adds the field itself."""

    help: str
    short: str = ""  # "-t"
    panel: str = ""  # the heading in `--help`; "": among the most used
    metavar: str | None = None  # the word for its value in `--help`; None: by the type
    read: Callable[[str], Any] | None = None  # the value that a text means; raises `ValueError`; None: by the type
    write: Callable[[Any], str] = format_value  # the text of a value, for messages
    typed: str | None = None  # the default as a person types it; None: the value itself
    called: str = ""  # in the error about a wrong value; "": its name
    goal: str = ""  # the field of `Goal` that it becomes, which resuming compares; "": none
    compared_as: str = ""  # in a refusal to resume; "": its flag

    objectives: tuple[str, ...] = ()  # those that look at it; none: all do; from here on added by `described`
    field: str = ""
    parts: tuple[Any, ...] = ()  # of the type: classes, literals, bounds
    default: Any = None

    @property
    def name(self) -> str:
        """The option's name in the Python call and in a settings file: the field's name without its unit."""
        return self.field.removesuffix("_seconds")

    @property
    def flag(self) -> str:
        """The option's name on the command line, with `--`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that the option takes; empty if it is no choice."""
        return tuple(word for part in self.parts if get_origin(part) is Literal for word in get_args(part))

    @property
    def bounds(self) -> msgspec.Meta | None:
        """The bounds of the numbers that the option takes; None: no bounds."""
        return next((part for part in self.parts if isinstance(part, msgspec.Meta)), None)

    def parse(self, text: str) -> Any:
        """Return the value that a text means. Raises `ValueError` if there is none, or if it is out of bounds."""
        assert self.read is not None, self.field
        value = self.read(text)
        self.check(value)
        return value

    @property
    def annotation(self) -> str:
        """The option's type as Python code: the field's, or a text if the option can be read from text."""
        kinds = ["str"] if self.read or self.choices else []
        kinds += [part.__name__ for part in self.parts if isinstance(part, type) and part is not NoneType]
        return " | ".join([*kinds, "None"])

    def check(self, value: Any) -> None:
        """Raise `ValueError` with rule and value unless `value` is among the choices or within the bounds."""
        choices, bounds = self.choices, self.bounds
        if (not choices and bounds is None) or (value is None and self.default is None) or value in choices:
            return
        if bounds is not None and isinstance(value, Real) and not isinstance(value, bool) and _within(bounds, value):
            return
        if bounds is None:
            rule = f"one of {', '.join(choices)}"
        elif isinstance(value, str) and choices:
            rule = f"{', '.join(choices)} or a whole number"
        else:
            rule = bounds.description or ""
        raise ValueError(f"{self.called or self.name} must be {rule}, got {value!r}")


def described(kind: type[Any], objectives: tuple[str, ...] = ()) -> tuple[Option, ...]:
    """Return the description of every field of a dataclass or record that has one, in their order.

    Options of some `objectives` have no default here, so that a given value is recognised; their help names it.
    """
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for field in msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else fields(kind):
        parts = tuple(_parts(hints[field.name]))
        default = field.default if isinstance(field.default, str | int | float) else None
        for option in parts:
            if isinstance(option, Option):
                read = option.read or (parse_number if float in parts else None)
                described = replace(option, field=field.name, parts=parts, default=default, read=read)
                found.append(_belonging(described, objectives) if objectives else described)
    return tuple(found)


def _belonging(option: Option, objectives: tuple[str, ...]) -> Option:
    told = "" if option.default is None else f" [default: {option.write(option.default)}]"
    return replace(
        option, help=f"{option.help}{told}", objectives=objectives, parts=(*option.parts, NoneType), default=None
    )


def _parts(kind: Any) -> Iterator[Any]:
    """Yield the parts of a type: members of unions, and annotations."""
    if get_origin(kind) is Annotated:
        yield from kind.__metadata__
        yield from _parts(kind.__origin__)
    elif get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from _parts(one)
    else:
        yield kind


def _within(bounds: msgspec.Meta, value: Any) -> bool:
    """Return whether a number is finite and within `bounds`."""
    return (
        -math.inf < value < math.inf  # not even a whole number too large for a float is infinite
        and (bounds.gt is None or value > bounds.gt)
        and (bounds.ge is None or value >= bounds.ge)
        and (bounds.lt is None or value < bounds.lt)
        and (bounds.le is None or value <= bounds.le)
    )
