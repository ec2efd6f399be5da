"""The arithmetic of a configuration: the values of the knobs that change what is computed, and its name.

Several such values at once are one arithmetic: a check compares their combination with the arithmetic of the user's own
code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.core.records import Config, TargetFacts, Value
from autotune.knobs import KNOBS, is_ours
from autotune.knobs.base import BARE, TACIT, Knob
from autotune.precision.records import PrecisionCheckRequest


def precision_of(config: Config) -> dict[str, Value]:
    """Return the values of the knobs that change arithmetic, by knob name."""
    return {knob.name: config.values.get(knob.name, knob.default) for knob in KNOBS if knob.numerics}


def contains(values: Mapping[str, Value], part: Mapping[str, Value]) -> bool:
    """Return whether an arithmetic makes all changes of `part`, and perhaps more; both by knob name."""
    usual = precision_of(Config(values={}))
    changed = {name: value for name, value in part.items() if value != usual.get(name)}
    return bool(changed) and changed.items() <= values.items()


def own_arithmetic(facts: TargetFacts) -> dict[str, Value]:
    """Return the arithmetic of the user's code when no knob is set, by knob name: others are compared with it.

    Full precision, unless the code itself sets something else, which cannot be undone from outside (decisions/0060).
    """
    return {knob.name: facts.found.get(knob.name, knob.default) for knob in KNOBS if knob.numerics}


def full_precision(config: Config, facts: TargetFacts) -> Config:
    """Return the configuration with the arithmetic of the user's code."""
    return Config(values={**config.values, **own_arithmetic(facts)})


def reference_phrase(facts: TargetFacts) -> str:
    """Return the arithmetic that others are compared with, in words: `full precision`, or what the user's code sets."""
    own = own_arithmetic(facts)
    words = [knob.phrase(own[knob.name]) for knob in KNOBS if knob.numerics and own[knob.name] != knob.default]
    return f"your code's own arithmetic ({', '.join(words)})" if words else "full precision"


def compared_phrase(config: Config, facts: TargetFacts) -> str:
    """Return what this configuration's losses are compared with, in words: `your code with groups 1`, `full precision`.

    Where only settings that the target declares change the arithmetic, precision is not in question.
    """
    own, values = own_arithmetic(facts), precision_of(config)
    changed = [knob for knob in KNOBS if knob.numerics and values[knob.name] != own[knob.name]]
    if not changed or any(is_ours(knob.name) for knob in changed):
        return reference_phrase(facts)
    return f"your code with {', '.join(f'{knob.label} {knob.show(own[knob.name])}' for knob in changed)}"


def names(request: PrecisionCheckRequest) -> tuple[str, str]:
    """Return the names of candidate and reference, as in a table: `bf16` and `fp32`."""
    return names_of(
        precision_of(request.candidate), precision_of(request.reference), lambda one, value: one.show(value)
    )


def names_of(
    candidate: Mapping[str, Value], reference: Mapping[str, Value], show: Callable[[Knob, Value], str]
) -> tuple[str, str]:
    """Return the names of two arithmetics, by what differs and by what both change: `bf16 tf32` and `fp32 tf32`."""
    known = [one for one in KNOBS if one.numerics and one.name in candidate and one.name in reference]
    said = [one for one in known if {candidate[one.name], reference[one.name]} != {one.default}]
    first, second = (
        arithmetic([(k.label, show(k, values[k.name])) for k in said]) for values in (candidate, reference)
    )
    return first, second


def arithmetic(shown: Sequence[tuple[str, str]]) -> str:
    """Return the name of an arithmetic by labels and shown values: `bf16 tf32`; `no tf32` if all are in `TACIT`."""
    said = [f"{label} {text}" if text in BARE else text for label, text in shown if text not in TACIT]
    return " ".join(said or [f"{text} {label}" for label, text in shown])
