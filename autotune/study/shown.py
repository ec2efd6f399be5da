"""Configurations in words, the same in messages, in tables and on the page."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autotune.core.records import StudyRequest, Value
from autotune.harmless import plain
from autotune.knobs import KNOBS, is_ours, touched
from autotune.knobs.base import BARE, TACIT, Knob
from autotune.knobs.changes import BATCH_KNOBS


def moving(request: StudyRequest) -> tuple[Knob, ...]:
    """Return the knobs that this search may change, or that the baseline sets: only they get a column."""
    moved = touched([request.baseline])
    return tuple(knob for knob in KNOBS if len(request.domains.get(knob.name, ())) > 1 or knob in moved)


def shown_value(knob: Knob, values: Mapping[str, Value]) -> str:
    """Return the knob's value for a table; unchanged if this version does not know it."""
    value = values.get(knob.name, knob.default)
    try:
        knob.check(value)
    except ValueError:
        return plain(str(value))
    return knob.show(value)


def shown_config(values: Mapping[str, Value], knobs: Collection[Knob] = KNOBS) -> str:
    """Return a configuration as in the table of probes: `1024×1 bf16 workers 12`.

    After the batch come `knobs`, and other knobs that are not at their defaults; a value that needs a label has the
    title of its column before it.
    """
    parts = ["".join(shown_value(knob, values) for knob in KNOBS if knob.name in BATCH_KNOBS)]
    for knob in (one for one in KNOBS if one.name in values or is_ours(one.name)):  # another's own has no value here
        is_told = knob in knobs or values.get(knob.name, knob.default) != knob.default
        text = shown_value(knob, values)
        if knob.name in BATCH_KNOBS or not is_told or (text in TACIT and not knob.needs_label):
            continue
        is_bare = text.removesuffix("%").isdigit() or text in BARE
        parts.append(f"{knob.label} {text}" if knob.needs_label or is_bare else text)
    return " ".join(parts)
