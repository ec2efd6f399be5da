"""The names of the samplers, apart from the samplers: to read a flag nobody should have to import Optuna."""

from __future__ import annotations

from typing import Literal, get_args

SamplerName = Literal["structured", "tpe", "gp", "random"]
SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)
