"""How the tables of real searches say what was run, and where."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Mapping, Sequence

from autotune.core.records import Environment, Value
from autotune.knobs import KNOBS, defaults
from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name, usable_cores


def here() -> str:
    """The machine of this process, and the versions."""
    return (
        f"{cpu_name()}, {usable_cores()} cores, {platform.platform(terse=True)}, Python {platform.python_version()}, "
        f"torch {torch_version()}"
    )


def there(environment: Environment) -> str:
    """The same of a recorded one."""
    return (
        f"{environment.device_name}, {environment.usable_cores} cores, {environment.platform}, "
        f"Python {environment.python}, torch {environment.torch}"
    )


def described(values: Mapping[str, Value]) -> str:
    """The micro-batch and the settings that are not the defaults."""
    complete = {**defaults(), **values}
    changed = [knob for knob in KNOBS if complete[knob.name] != knob.default or knob.name == "batch_size"]
    return ", ".join(f"{knob.label} {knob.show(complete[knob.name])}" for knob in changed)


def row(*cells: object) -> str:
    """One line of a markdown table."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def heading(*cells: str) -> str:
    """The first two lines of one."""
    return f"{row(*cells)}\n{row(*('---' for _ in cells))}"


def share_of(ratios: Sequence[float]) -> str:
    """A median of ratios, with all of them where there are several."""
    if not ratios:
        return "–"
    each = f" ({', '.join(f'{ratio:.0%}' for ratio in ratios)})" if len(ratios) > 1 else ""
    return f"{statistics.median(ratios):.0%}{each}"
