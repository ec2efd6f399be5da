"""Says, before the first probe, which values that user or target ask for have no effect or are not available here.

A value without effect is replaced by an equivalent one (`Knob.idle`, `Knob.instead`), so that no answer contains it. A
value that is not available (`Knob.lacking`) is left out; if no other value was asked for, `space.build` has raised an
error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Config, Limit, Value
from autotune.knobs import KNOBS
from autotune.knobs.base import Knob
from autotune.knobs.declared import text
from autotune.knobs.parsing import typed
from autotune.sampler.space import SearchSpace
from autotune.sampler.space_errors import lacking

OF_LIMITS = Code.VALUES_IDLE, Code.VALUES_ALIKE  # of values that do nothing, and the same as another
OF_BASELINE = Code.BASELINE_IDLE, Code.BASELINE_ALIKE


def idle_notices(
    space: SearchSpace, limits: Mapping[str, Limit], declared: Mapping[str, Value], baseline: Config
) -> dict[str, list[Notice]]:
    """Return notices by knob: `sdpa=flash does nothing here: no step calls scaled_dot_product_attention`.

    `limits` are those of user and target, `declared` the values that they give for the `baseline`.
    """
    found = {one.name: [*_of_limit(space, one, limits.get(one.name))] for one in KNOBS}
    for one in KNOBS:
        if one.name in declared and not found[one.name]:
            found[one.name] += _idle(space, one, [declared[one.name]], [baseline], OF_BASELINE)
    return {name: notices for name, notices in found.items() if notices}


def _of_limit(space: SearchSpace, knob: Knob, limit: Limit | None) -> Iterator[Notice]:
    if limit is None:
        return
    here = replace(space.circumstances, limit=limit)
    left = space.configs.values(knob.name)
    out = [value for value in limit.values or knob.domain(here) if value not in left]
    unhad = {value: why for value in out if (why := lacking(knob, value, here))}
    for why in dict.fromkeys(unhad.values()):
        those = _typed(knob, [value for value in unhad if unhad[value] == why])
        yield notice(Code.VALUES_NOT_AVAILABLE, knob=knob.name, values=those, why=why)
    yield from _idle(space, knob, [value for value in out if value not in unhad], space.around(), OF_LIMITS)


def _idle(
    space: SearchSpace, knob: Knob, values: Iterable[Value], beside: Iterable[Config], codes: tuple[Code, Code]
) -> Iterator[Notice]:
    """Yield a notice for those of `values` that are idle in each of the configurations `beside`."""
    here, usual = space.circumstances, knob.left_alone(space.circumstances.facts)
    alike: dict[tuple[str, Value], list[Value]] = {}
    for value in values:
        reasons = [knob.idle({**config.values, knob.name: value}, here) for config in beside if value != usual]
        if reasons and all(reasons):
            alike.setdefault((reasons[0], knob.instead(value, here)), []).append(value)
    for (why, instead), those in alike.items():
        does_nothing, does_the_same = codes
        code, other = (does_nothing, None) if instead == usual else (does_the_same, text(instead))
        yield notice(code, knob=knob.name, values=_typed(knob, those), instead=other, why=why)


def _typed(knob: Knob, values: Iterable[Value]) -> tuple[str, ...]:
    return tuple(typed({knob.name: value}) for value in values)
