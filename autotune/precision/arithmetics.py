"""The arithmetic of a configuration: the values of all knobs that change it, their name, and which there can be."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from autotune.core.records import Config, StudyRequest, Value
from autotune.core.results import LossVerdict
from autotune.knobs import KNOBS, completed
from autotune.knobs.base import TACIT, Knob
from autotune.sampler.space import canonical, circumstances_of


def precision_of(config: Config) -> dict[str, Value]:
    """Return the values of the knobs that change arithmetic, by knob name."""
    return {knob.name: config.values.get(knob.name, knob.default) for knob in KNOBS if knob.numerics}


def full_precision(config: Config, found: Mapping[str, Value]) -> Config:
    """Return the configuration with these knobs at their default, or at what the user's code sets whatever is asked."""
    plain = {knob.name: found.get(knob.name, knob.default) for knob in KNOBS if knob.numerics}
    return Config(values={**config.values, **plain})


def arithmetics(request: StudyRequest) -> list[dict[str, Value]]:
    """Return all that a search may compute in, but for full precision: some values exist beside certain others only."""
    knobs = [knob for knob in KNOBS if knob.numerics]
    combined = itertools.product(*(request.domains.get(knob.name, (knob.default,)) for knob in knobs))
    chosen = ({knob.name: value for knob, value in zip(knobs, values, strict=True)} for values in combined)
    configs = (Config(values={**completed(request.baseline).values, **values}) for values in chosen)
    plain = precision_of(full_precision(request.baseline, request.facts.found))
    found = [precision_of(canonical(config, circumstances_of(request))) for config in configs]
    return [values for number, values in enumerate(found) if values != plain and values not in found[:number]]


def arithmetic_of(verdict: LossVerdict) -> dict[str, Value]:
    """Return the values that a verdict is about; an earlier version knew fewer such knobs."""
    return precision_of(Config(values=verdict.values))


def arithmetic_name(
    values: Mapping[str, Value], others: Mapping[str, Value],
    show: Callable[[Knob, Mapping[str, Value]], str] = lambda knob, values: knob.show(values[knob.name]),
) -> str:  # fmt: skip
    """Return the name of these values by those that differ from the others; by all where they leave things alone."""
    knobs = [knob for knob in KNOBS if knob.name in values and knob.name in others]
    differing = [show(knob, values) for knob in knobs if values[knob.name] != others[knob.name]]
    everything = [show(knob, values) for knob in knobs]
    some, whole = ([text for text in shown if text not in TACIT] for shown in (differing, everything))
    return " ".join(some or whole)
