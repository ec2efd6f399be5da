"""The arithmetics that a search may choose from: the values of several knobs together."""

from __future__ import annotations

import itertools

from autotune.core.records import Config, StudyRequest, Value
from autotune.core.results import LossVerdict
from autotune.knobs import KNOBS, completed
from autotune.precision.judge import full_precision, precision_of
from autotune.sampler.space import canonical, circumstances_of


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
