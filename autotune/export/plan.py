"""The plan that a recommendation's settings make together: what was measured is what is used."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.core.records import Value
from autotune.errors import UsageError
from autotune.knobs import KNOBS, check, defaults
from autotune.knobs.base import Plan


def planned(values: Mapping[str, Value], device: str) -> Plan:
    """All `values` by knob name, applied. Imports no torch; what the plan holds does when it is carried out.

    Raises `UsageError` for a setting that is unknown or has an impossible value.
    """
    unknown = sorted(values.keys() - defaults().keys())
    if unknown:
        raise UsageError(
            f"This autotune has no knob called {', '.join(unknown)}. A newer version probably wrote the study. "
            f"Install that version, or search again."
        )
    try:
        check(values)
    except ValueError as error:
        raise UsageError(
            f"The settings cannot be applied: {error}. They were probably edited by hand. "
            f"Correct best.json, or search again."
        ) from error
    plan = Plan(device=device)
    for knob in KNOBS:
        knob.apply(values[knob.name], plan)
    return plan
