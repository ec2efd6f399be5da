"""The changes between two configurations, in which micro-batch and accumulation count as one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from autotune.core.records import Config, Value
from autotune.knobs import KNOBS

BATCH_KNOBS = ("batch_size", "gradient_accumulation_steps")  # their product is the global batch: they move as one


def changes_between(one: Mapping[str, Value], other: Mapping[str, Value]) -> list[tuple[str, ...]]:
    """Return the changes from one configuration to the other, each as the names of the knobs that change together."""
    usual = {knob.name: knob.default for knob in KNOBS}
    names = [knob.name for knob in KNOBS]
    moved = [name for name in names if one.get(name, usual[name]) != other.get(name, usual[name])]
    held = [BATCH_KNOBS] if set(moved) & set(BATCH_KNOBS) else []
    return [*held, *((name,) for name in moved if name not in BATCH_KNOBS)]


def variables(config: Config, baseline: Config) -> list[str]:
    """Return the names of the knobs that set environment variables unlike the baseline does."""
    return [one.name for one in KNOBS if one.environ(config[one.name]) != one.environ(baseline[one.name])]


def with_fewer_variables(config: Config, baseline: Config) -> set[Config]:
    """Return `config` with one or more of its environment variables as the baseline has them, in all combinations."""
    names = variables(config, baseline)
    taken = [some for count in range(1, len(names) + 1) for some in itertools.combinations(names, count)]
    return {Config(values={**config.values, **{name: baseline[name] for name in some}}) for some in taken}


def keeps_memory(config: Config, baseline: Config) -> bool:
    """Return whether a knob that only avoids page faults differs from the baseline."""
    return any(config[name] != baseline[name] for name in keeping_knobs())


def keeping_knobs() -> list[str]:
    """Return the names of the knobs that only avoid page faults."""
    return [one.name for one in KNOBS if one.spares_faults]
