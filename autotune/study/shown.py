"""Configurations of a study in words, as in the table of its probes."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.records import Config, StudyRequest
from autotune.knobs import KNOBS, touched
from autotune.knobs.base import TACIT, Knob
from autotune.knobs.changes import BATCH_KNOBS


def moving(request: StudyRequest) -> tuple[Knob, ...]:
    """Return the knobs that this search may move, or that the baseline has moved: only they get a column."""
    moved = touched([request.baseline])
    return tuple(knob for knob in KNOBS if len(request.domains.get(knob.name, ())) > 1 or knob in moved)


def shown_config(config: Config, knobs: Sequence[Knob] = KNOBS) -> str:
    """Return a configuration as in the table of probes, a mere number with the title of its column."""
    batch = f"{config.batch_size}×{config.gradient_accumulation_steps}"
    others = []
    for knob in knobs:
        text = knob.show(config[knob.name])
        told = text not in TACIT or knob.needs_label
        if knob.name not in BATCH_KNOBS and told:
            others.append(f"{knob.label} {text}" if text.isdigit() or knob.needs_label else text)
    return ", ".join([batch, *others])
