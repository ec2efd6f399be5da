"""The registry of knobs. Order is the order of columns, of keys in the dict, and of application to a plan."""

from __future__ import annotations

from autotune.knobs.amp_dtype import AmpDtype
from autotune.knobs.base import Knob
from autotune.knobs.batch_size import BatchSize
from autotune.knobs.channels_last import ChannelsLast
from autotune.knobs.gradient_accumulation_steps import GradientAccumulationSteps
from autotune.knobs.num_workers import NumWorkers
from autotune.records import Value

KNOBS: tuple[Knob, ...] = (
    BatchSize(),
    GradientAccumulationSteps(),
    AmpDtype(),
    NumWorkers(),
    ChannelsLast(),
)


def knob(name: str) -> Knob:
    """The knob with that name or alias. Raises `KeyError`."""
    for candidate in KNOBS:
        if name in (candidate.name, candidate.alias):
            return candidate
    raise KeyError(name)


def defaults() -> dict[str, Value]:
    """What PyTorch does when nobody says anything, by knob name."""
    return {candidate.name: candidate.default for candidate in KNOBS}
