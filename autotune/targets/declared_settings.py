"""The settings in a target: `baseline`, `space` and `global_batch_size`, checked against the knobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from autotune.core.records import Limit, Value
from autotune.errors import TargetError
from autotune.knobs import is_ours, knob
from autotune.knobs.parsing import checked_value, full_name, limit
from autotune.targets.contract import Contract

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class DeclaredSettings:
    """The settings that the target declares, by knob name."""

    baseline: dict[str, Value] | None  # only the knobs that it names; None: not declared
    space: dict[str, Limit]
    global_batch_size: int | None

    def check(self, samples: int | None) -> None:
        """Raise `TargetError` if the held global batch is larger than the dataset of so many samples; None: unknown."""
        held = self.global_batch_size
        if held is not None and samples is not None and samples < held:
            raise TargetError(
                f"dataset has {samples} samples, the held global batch is {held}. One optimizer step would need more "
                f"than an epoch. Lower --global-batch or global_batch_size in the file."
            )


def read_settings(contract: Contract) -> DeclaredSettings:
    """Return the checked settings. Raises `TargetError` for an unknown knob or a value that its knob cannot take."""
    baseline = _by_knob(contract, "baseline")
    space = _by_knob(contract, "space")
    return DeclaredSettings(
        baseline=None
        if baseline is None
        else {name: _meant("baseline", checked_value, name, value) for name, value in baseline.items()},
        space={name: _meant("space", limit, name, allowed) for name, allowed in (space or {}).items() if is_ours(name)},
        global_batch_size=_global_batch_size(contract),
    )


def _by_knob(contract: Contract, setting: str) -> dict[str, Any] | None:
    if setting not in contract:
        return None
    given = contract.make(setting, {})
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise TargetError(
            f"{setting} is {'an' if kind[0] in 'aeiou' else 'a'} {kind}. It holds values by knob name. "
            f'Write a dict, such as {setting} = {{"batch_size": 64}}.'
        )
    return {_knob_name(str(name), setting): value for name, value in given.items()}


def _knob_name(name: str, setting: str) -> str:
    try:
        return full_name(name)
    except ValueError as error:
        raise TargetError(f"{setting}: {error}") from None


def _meant(setting: str, parse: Callable[[str, Any], T], name: str, written: Any) -> T:
    try:
        return parse(name, written)
    except ValueError as error:
        usual = knob(name).default
        example = {name: [usual] if setting == "space" else usual}
        raise TargetError(
            f'{setting}["{name}"]: {error}. A {type(written).__name__} was given: it was probably mistyped, or has '
            f"the wrong type. Write a value that it can take, such as {setting} = {example}."
        ) from error


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
