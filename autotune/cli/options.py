"""Turns the texts typed for options into records; each error names the option and the accepted forms."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from autotune.core.option import Option, described
from autotune.core.records import Limit, Value
from autotune.errors import UsageError
from autotune.knobs import OURS, is_ours, knob
from autotune.knobs.base import Knob
from autotune.knobs.declared import scalar
from autotune.knobs.parsing import asked_name, listed, option, range_between, value_hint
from autotune.preparation.fleet_settings import FleetSettings
from autotune.preparation.settings import KnobNames, KnobValues, Settings, options
from autotune.races.settings import RaceSettings
from autotune.units import MOST_NUMBER_CHARACTERS

T = TypeVar("T")
KNOB_PANEL = "Knobs, each with the values that may be searched"
MISTYPED = "It was probably mistyped."


def with_search_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` an option for each setting of a search and for each knob, in place of its keyword arguments.

    The options of knobs come last, each named by its alias.
    """
    settings = [_setting(one, has_variable=True) for one in (*options(), *described(FleetSettings))]
    return _with(command, settings, [_parameter(one.alias, None, _knob(one)) for one in OURS])


def with_race_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` an option for each setting of a race, in place of its keyword arguments."""
    return _with(command, [_setting(one, has_variable=False) for one in described(RaceSettings)])


def parameter_of(name: str, kind: type[Any] = Settings, *, help: str | None = None, has_variable: bool = True) -> Any:
    """Return what typer needs to know of an option of `kind`, for other commands that take it too.

    `help` replaces its text. `has_variable` says whether AUTOTUNE_... sets it there.
    """
    one = next(one for one in (options() if kind is Settings else described(kind)) if one.name == name)
    return _typed(replace(one, help=help or one.help, panel=""), has_variable=has_variable)


def _with(
    command: Callable[..., None], first: Sequence[inspect.Parameter], last: Sequence[inspect.Parameter] = ()
) -> Callable[..., None]:
    """Put parameters in place of the keyword arguments: `first` after its arguments, `last` after its own options."""
    signature = inspect.signature(command, eval_str=True)
    *named, rest = signature.parameters.values()
    arguments = [one for one in named if one.kind is not rest.KEYWORD_ONLY]
    others = [one for one in named if one.kind is rest.KEYWORD_ONLY]
    parameters = [*arguments, *first, *others, *last]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # read by typer
    del command.__annotations__[rest.name]
    command.__annotations__.update({one.name: one.annotation for one in (*first, *last)})
    return command


def _parameter(name: str, default: Any, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _setting(one: Option, *, has_variable: bool) -> inspect.Parameter:
    """Return a setting as typer needs it: what is neither switch, number nor path is a text, which is parsed later."""
    kind: Any = next((kind for kind in (bool, int, Path) if kind in one.parts and not one.choices), str)
    typed: Any = Annotated[kind if one.default is not None else kind | None, _typed(one, has_variable=has_variable)]
    return _parameter(one.name, one.typed or one.default, typed)


def _typed(one: Option, *, has_variable: bool) -> Any:
    return typer.Option(
        *((one.flag, one.short) if one.short else (one.flag,)),
        envvar=_variable(one.name) if has_variable else None,
        help=one.help,
        metavar=one.metavar,
        rich_help_panel=one.panel or None,
    )


def _knob(one: Knob) -> Any:
    typed = typer.Option(
        option(one.name), envvar=_variable(one.alias), help=one.option_help, rich_help_panel=KNOB_PANEL
    )
    return Annotated[str | None, typed]


def _variable(name: str) -> str:
    return f"AUTOTUNE_{name.upper()}"


class Options:
    """The options of one call of a command, with the place where each value was given."""

    def __init__(self, context: typer.Context, may_declare: Callable[[str], bool] = lambda name: False) -> None:
        """`may_declare` returns whether the target may declare a knob of that name."""
        self._context, self._may_declare = context, may_declare

    def parsed(self, option: str, text: Any, parse: Callable[[Any], T]) -> T | None:
        """Return `parse(text)`, with the option named if it fails; None without a text."""
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            name = option.removeprefix("--").replace("-", "_")
            said = f"{option}: {error}".replace(f": {name} must", " must", 1)  # the option is the name
            raise UsageError(f"{said}. {self._whence(option)} Correct it, or leave it out.") from error

    def settings(self, typed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the typed options of a search, by name, for `Settings.of`; without those left out."""
        return self._values(options(), typed)

    def fleet(self, typed: Mapping[str, Any], note: Callable[[str], None]) -> FleetSettings | None:
        """Return the workers that were named; None if this machine measures.

        What a file or a variable says about workers counts if there is a storage; else `note` reports that it does not.
        Raises `UsageError` if it was typed without a storage.
        """
        given = {name: value for name, value in self._values(described(FleetSettings), typed).items() if value != ""}
        if "storage" not in given:
            whence = {name: given_by(self._context, name) for name in given}
            for name, value in given.items():
                if whence[name] in ("ENVIRONMENT", "DEFAULT_MAP"):
                    note(f"{name} = {value} counts only with a storage, and none is given: this machine measures.")
            given = {name: value for name, value in given.items() if whence[name] == "COMMANDLINE"}
        return FleetSettings.of(**given)

    def race(self, typed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the typed options of a race, by name, for `autotune.race`; without those left out."""
        values = self._values(described(RaceSettings), typed)
        return {one.name: values[one.field] for one in described(RaceSettings) if one.field in values}

    def _values(self, described: Iterable[Option], typed: Mapping[str, Any]) -> dict[str, Any]:
        return {one.field: self._value(one, typed[one.name]) for one in described if typed.get(one.name) is not None}

    def _value(self, one: Option, given: Any) -> Any:
        if one.read is not None:
            return self.parsed(one.flag, given, one.parse)
        if KnobValues in one.parts:
            return self.pairs(one.flag, given)
        if KnobNames in one.parts:
            return self.names(one.flag, given)
        if one.name == "global_batch":
            return self.global_batch(given)
        self.parsed(one.flag, given, one.check)
        return given

    def limits(self, typed: Mapping[str, Any]) -> dict[str, Limit]:
        """Return the limits typed for the knobs' own options, by full name; `typed` has them by alias."""
        names = {one.name: typed[one.alias] for one in OURS}
        return {name: self._limit(name, text) for name, text in names.items() if text is not None}

    def pairs(self, option: str, text: str | None) -> dict[str, Value]:
        """Return the knob values of `batch=64,amp=bf16`, by full name; empty without a text."""
        values: dict[str, Value] = {}
        for pair in _pairs(text or ""):
            name, equals, value = pair.partition("=")
            if not equals:
                meant = value_hint(pair.strip()) or f"{self._whence(option)} Write knob=value: batch=64,amp=bf16."
                raise UsageError(f"{option} {text}: {pair!r} has no value. {meant}")
            full = known(option, name.strip(), self._may_declare)
            parse = knob(full).parse if is_ours(full) else scalar  # the target checks the values of its own knobs
            read = self._written(option, text or "", parse, value.strip())
            if full in values and values[full] != read:
                raise UsageError(
                    f"{option} {text}: {full} is given twice, with different values. {self._whence(option)} Keep one."
                )
            values[full] = read
        return values

    def held(self, text: str | None, typed: Mapping[str, Any]) -> dict[str, Limit]:
        """Return the knobs that `--fix` holds. Raises `UsageError` for one with an option of its own in `typed`."""
        fixed, limits = self.pairs("--fix", text), self.limits(typed)
        for name, value in fixed.items():
            if name in limits and not _permits(limits[name], value):
                own = f"{option(name)} {typed[knob(name).alias]}"
                raise UsageError(
                    f"--fix {text} holds a value that {own} leaves out. One of them was probably left over, or stands "
                    f"in autotune.toml, pyproject.toml or a variable AUTOTUNE_... Keep one."
                )
        return {name: Limit(values=(value,)) for name, value in fixed.items()}

    def names(self, option: str, text: str | None) -> tuple[str, ...] | None:
        """Return the full knob names of `batch,workers`; None without a text."""
        return (
            None if text is None else tuple(known(option, part.strip(), self._may_declare) for part in text.split(","))
        )

    def global_batch(self, text: str | None) -> int | Literal["keep", "free"] | None:
        """Return `keep`, `free` or a number of samples; None without a text."""
        if text is None or text == "keep" or text == "free":
            return text  # type: ignore[return-value]  # narrowed by the comparison
        if not re.fullmatch(r"0*[1-9][0-9]{0,17}", text):  # fits in 64 bits
            raise UsageError(
                f"--global-batch {text[:MOST_NUMBER_CHARACTERS]} is neither a number of samples nor keep nor free. "
                f"{self._whence('--global-batch')} Write --global-batch 256 to hold that many, keep to hold the "
                f"baseline's, free to search it."
            )
        return int(text)

    def _limit(self, name: str, text: str) -> Limit:
        """Return the limit of `8:512`, `8:`, `:512`, or of a list `16,32,64`."""

        def read(text: str) -> Limit:
            if ":" not in text:
                return listed(name, [knob(name).parse(part.strip()) for part in text.split(",")])
            return range_between(name, *_ends(name, text))

        return self._written(option(name), text, read, text)

    def _written(self, option: str, typed: str, parse: Callable[[str], T], text: str) -> T:
        """Return `parse(text)`; `typed` is all that was typed for the option that contains `text`."""
        try:
            return parse(text)
        except ValueError as error:
            said = str(error).replace(" or None,", " or none,")  # as it is typed; elsewhere a value is Python's
            raise UsageError(
                f"{option} {typed}: {said}. {self._whence(option)} `autotune search --help` shows how it is written."
            ) from error

    def _whence(self, option: str) -> str:
        """Return a sentence on where the value of `option` comes from; a typed one was probably mistyped."""
        name = option.removeprefix("--").replace("-", "_")
        source = given_by(self._context, name)
        if source == "ENVIRONMENT":
            return f"It stands in the variable AUTOTUNE_{name.upper()}."
        return f"It stands in {self._context.obj}." if source == "DEFAULT_MAP" else MISTYPED


def given_by(context: typer.Context, name: str) -> str:
    """Return what gave a parameter its value: `COMMANDLINE`, `ENVIRONMENT`, `DEFAULT_MAP` (a file) or `DEFAULT`."""
    return getattr(context.get_parameter_source(name), "name", "")


def _pairs(text: str) -> list[str]:
    """Return the pairs of `batch=64,amp=bf16`; a value of a knob of the user's own may contain a comma."""
    pairs: list[str] = []
    for part in text.split(",") if text else ():
        is_of_value = pairs and "=" not in part and _is_own(pairs[-1].partition("=")[0].strip())
        pairs[len(pairs) - bool(is_of_value) :] = [f"{pairs[-1]},{part}" if is_of_value else part]
    return pairs


def _is_own(name: str) -> bool:
    return all(name not in (one.name, one.alias) for one in OURS)


def _permits(limit: Limit, value: Value) -> bool:
    if limit.values is not None:
        return value in limit.values
    low, high = (end if end is not None else value for end in (limit.low, limit.high))
    return isinstance(value, int) and low <= value <= high  # type: ignore[operator]  # numbers, or the value itself


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


def one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise `UsageError` unless `value` is one of `choices`."""
    if value not in choices:
        raise UsageError(f"{option} {value} is not known. {MISTYPED} Use one of: {', '.join(choices)}.")


def known(option: str, name: str, may_declare: Callable[[str], bool] = lambda name: False) -> str:
    """Return the full name of a knob from name or alias; the name itself for a knob that a target may declare."""
    try:
        return asked_name(name, may_declare)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
