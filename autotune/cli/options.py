"""What people type for options, turned into records; every mistake names the option and the accepted forms."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import typer

from autotune.core.records import Limit, Value
from autotune.errors import UsageError
from autotune.knobs import KNOBS, knob
from autotune.knobs.limits import between, full_name, listed, option

T = TypeVar("T")
MISTYPED = "It was probably mistyped."
MOST_TOLD = 40  # characters of a number that cannot be meant


def with_knob_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` an option for every knob, each after its alias, in place of its keyword arguments."""
    signature = inspect.signature(command, eval_str=True)
    *named, rest = signature.parameters.values()
    kinds: dict[str, Any] = {
        one.alias: Annotated[
            str | None,
            typer.Option(option(one.name), envvar=f"AUTOTUNE_{one.alias.upper()}", help=one.option_help),
        ]
        for one in KNOBS
    }
    own = [inspect.Parameter(n, rest.KEYWORD_ONLY, default=None, annotation=kind) for n, kind in kinds.items()]
    command.__signature__ = signature.replace(parameters=[*named, *own])  # type: ignore[attr-defined]  # read by typer
    del command.__annotations__[rest.name]
    command.__annotations__.update(kinds)
    return command


class Options:
    """The options of one call of a command, which knows of each where its value was given."""

    def __init__(self, context: typer.Context) -> None:
        self._context = context

    def parsed(self, option: str, text: str | None, parse: Callable[[str], T]) -> T | None:
        """`parse(text)`, with the option named if it fails; None for no text."""
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            raise UsageError(f"{option}: {error}. {self._whence(option)} Correct it, or leave it out.") from error

    def limits(self, typed: Mapping[str, str | None]) -> dict[str, Limit]:
        """What was typed for the knobs' own options, by alias, as limits of those given by full name."""
        names = {knob(alias).name: text for alias, text in typed.items()}
        return {name: self._limit(name, text) for name, text in names.items() if text is not None}

    def pairs(self, option: str, text: str | None) -> dict[str, Value]:
        """`batch=64,amp=bf16` as knob values by full name; empty for no text."""
        values: dict[str, Value] = {}
        for pair in text.split(",") if text else ():
            name, equals, value = pair.partition("=")
            if not equals:
                raise UsageError(
                    f"{option} {text}: {pair!r} has no value. {self._whence(option)} Write knob=value: "
                    f"batch=64,amp=bf16."
                )
            full = known(option, name.strip())
            values[full] = self._written(option, text or "", knob(full).parse, value.strip())
        return values

    def names(self, option: str, text: str | None) -> tuple[str, ...] | None:
        """`batch,workers` as full knob names; None for no text."""
        return None if text is None else tuple(known(option, part.strip()) for part in text.split(","))

    def global_batch(self, text: str | None) -> int | Literal["keep", "free"] | None:
        """`keep`, `free` or a number of samples."""
        if text is None or text == "keep" or text == "free":
            return text  # type: ignore[return-value]  # narrowed by the comparison
        if not re.fullmatch(r"0*[1-9][0-9]{0,17}", text):  # 64 bits hold it
            raise UsageError(
                f"--global-batch {text[:MOST_TOLD]} is neither a number of samples nor keep nor free. "
                f"{self._whence('--global-batch')} Write --global-batch 256 to hold that many, keep to hold the "
                f"baseline's, free to search it."
            )
        return int(text)

    def one_of(self, option: str, value: str, choices: tuple[str, ...]) -> None:
        """Raise `UsageError` unless `value` is one of `choices`."""
        one_of(option, value, choices, self._whence(option))

    def _limit(self, name: str, text: str) -> Limit:
        """`8:512`, `8:`, `:512`, or a list `16,32,64`."""

        def read(text: str) -> Limit:
            if ":" not in text:
                return listed(name, [knob(name).parse(part.strip()) for part in text.split(",")])
            return between(name, *_ends(name, text))

        return self._written(option(name), text, read, text)

    def _written(self, option: str, typed: str, parse: Callable[[str], T], text: str) -> T:
        """`parse(text)`; `typed` is all that was typed for the option that it stands in."""
        try:
            return parse(text)
        except ValueError as error:
            raise UsageError(
                f"{option} {typed}: {error}. {self._whence(option)} `autotune search --help` shows how it is written."
            ) from error

    def _whence(self, option: str) -> str:
        """Where the value of `option` stands, in a sentence, unless it was typed just now."""
        name = option.removeprefix("--").replace("-", "_")
        source = getattr(self._context.get_parameter_source(name), "name", "")
        if source == "ENVIRONMENT":
            return f"It stands in the variable AUTOTUNE_{name.upper()}."
        return f"It stands in {self._context.obj}." if source == "DEFAULT_MAP" else MISTYPED


def _ends(name: str, text: str) -> tuple[int | None, int | None]:
    low, high = (_end(name, part.strip(), text) for part in text.split(":", 1))
    if low is None and high is None:
        raise ValueError("a range needs a number on one side of the colon")
    return low, high


def _end(name: str, part: str, text: str) -> int | None:
    value = knob(name).parse(part) if part else None
    if part and type(value) is not int:
        raise ValueError(
            f"{part!r} is no number, so it bounds no range: list the values, {text.strip(':').replace(':', ',')}"
        )
    return value if isinstance(value, int) else None


def one_of(option: str, value: str, choices: tuple[str, ...], why: str = MISTYPED) -> None:
    """Raise `UsageError` unless `value` is one of `choices`; `why` is the probable reason, a sentence."""
    if value not in choices:
        raise UsageError(f"{option} {value} is not known. {why} Use one of: {', '.join(choices)}.")


def known(option: str, name: str) -> str:
    """The full name of a knob given by name or alias."""
    try:
        return full_name(name)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
