"""The arithmetic of a configuration: the values of the knobs that change what is computed, and its name.

Several of them at once are one arithmetic: what is compared is their combination, with all of them at their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.core.records import Config, Value
from autotune.core.requests import StabilityRequest
from autotune.knobs import KNOBS
from autotune.knobs.base import BARE, TACIT


def precision_of(config: Config) -> dict[str, Value]:
    """Return the values of the knobs that change arithmetic, by knob name."""
    return {knob.name: config.values.get(knob.name, knob.default) for knob in KNOBS if knob.numerics}


def contains(values: Mapping[str, Value], part: Mapping[str, Value]) -> bool:
    """Return whether an arithmetic has all that `part` changes, and perhaps more: both by knob name."""
    usual = precision_of(Config(values={}))
    changed = {name: value for name, value in part.items() if value != usual.get(name)}
    return bool(changed) and changed.items() <= values.items()


def full_precision(config: Config) -> Config:
    """Return the configuration with these knobs at their default."""
    return Config(values={**config.values, **{knob.name: knob.default for knob in KNOBS if knob.numerics}})


def names(request: StabilityRequest) -> tuple[str, str]:
    """Return the names of candidate and reference, as in a table: `bf16` and `fp32`."""
    one, other = precision_of(request.candidate), precision_of(request.reference)
    differing = [k for k in KNOBS if k.numerics and one[k.name] != other[k.name]]
    first, second = (arithmetic([(k.label, k.show(values[k.name])) for k in differing]) for values in (one, other))
    return first, second


def arithmetic(shown: Sequence[tuple[str, str]]) -> str:
    """Return the name of an arithmetic by label and value of knobs: `bf16 tf32`; `no tf32` where none says anything."""
    said = [f"{label} {text}" if text in BARE else text for label, text in shown if text not in TACIT]
    return " ".join(said or [f"{text} {label}" for label, text in shown])
