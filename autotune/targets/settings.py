"""The plain settings in a target: `baseline`, `space` and `global_batch_size`, checked against the knobs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import TargetError
from autotune.knobs import KNOBS, knob
from autotune.records import Limit, Value
from autotune.targets.contract import Contract


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the target says about knobs, by knob name."""

    baseline: dict[str, Value] | None  # only the knobs that it names; None: not declared
    space: dict[str, Limit]
    global_batch_size: int | None


def read_settings(contract: Contract) -> Settings:
    """Read and check them. Raises `TargetError` for an unknown knob or a value that its knob cannot take."""
    baseline = _by_knob(contract, "baseline")
    space = _by_knob(contract, "space")
    return Settings(
        baseline=None if baseline is None else {name: _checked(name, v, "baseline") for name, v in baseline.items()},
        space={name: _limit(name, allowed) for name, allowed in (space or {}).items()},
        global_batch_size=_global_batch_size(contract),
    )


def _by_knob(contract: Contract, setting: str) -> dict[str, Any] | None:
    if setting not in contract:
        return None
    given = contract.make(setting, {})
    if not isinstance(given, Mapping):
        raise TargetError(
            f"{setting} is a {type(given).__name__}. It holds values by knob name. "
            f'Write a dict, such as {setting} = {{"batch_size": 64}}.'
        )
    return {_knob_name(str(name), setting): value for name, value in given.items()}


def _knob_name(name: str, setting: str) -> str:
    try:
        return knob(name).name
    except KeyError:
        names = [one.name for one in KNOBS]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Use one of {', '.join(names)}."
        raise TargetError(
            f"{setting} names {name!r}, which is not a knob. Only knobs can be set there. {hint}"
        ) from None


def _checked(name: str, value: Any, setting: str) -> Value:
    try:
        knob(name).check(value)
    except ValueError as error:
        raise TargetError(f'{setting}["{name}"]: {error}. Write a value that the knob can take.') from error
    checked: Value = value
    return checked


def _limit(name: str, allowed: Any) -> Limit:
    """A pair of whole numbers in a tuple is a range, any other list or tuple the values themselves."""
    if isinstance(allowed, tuple) and len(allowed) == 2 and all(type(bound) is int for bound in allowed):
        low, high = allowed
        for bound in allowed:
            _checked(name, bound, "space")
        if low > high:
            raise TargetError(f'space["{name}"] is ({low}, {high}), a range with nothing in it. Write ({high}, {low}).')
        return Limit(low=low, high=high)
    values = tuple(allowed) if isinstance(allowed, list | tuple | set | range) else (allowed,)
    if not values:
        raise TargetError(f'space["{name}"] is empty. A knob needs a value. List at least one, or leave the knob out.')
    return Limit(values=tuple(_checked(name, value, "space") for value in values))


def _global_batch_size(contract: Contract) -> int | None:
    if "global_batch_size" not in contract:
        return None
    size = contract.make("global_batch_size", {})
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise TargetError(
            f"global_batch_size is {size!r}. It counts the samples of one optimizer step. "
            f"Write a whole number of at least 1."
        )
    return size
