"""A recommendation for the tests of exports, in the words of each framework."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from autotune.core.records import Value
from autotune.export import accelerate, huggingface, lightning, loop
from autotune.export.recipe import Recipe, recipe
from autotune.knobs import defaults
from autotune.knobs.wording import Framework
from tests.reporting import ENVIRONMENT, FACTS, recommendation

TRAINERS = {
    Framework.HUGGING_FACE: huggingface,
    Framework.LIGHTNING: lightning,
    Framework.ACCELERATE: accelerate,
}
PROGRAMS = {Framework.TORCH: loop, **TRAINERS}


def exported(
    to: Framework = Framework.TORCH, /, values: dict[str, Value] | None = None, device: str = "cpu", **facts: Any
) -> Recipe:
    """The recommendation of a search of a target of which `facts` hold."""
    here, known = replace(ENVIRONMENT, device=device), replace(FACTS, **facts)
    return recipe(recommendation(params=defaults() | (values or {}), environment=here, facts=known), to)
