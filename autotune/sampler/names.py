"""The names of the samplers, in a module of their own: parsing an option must not import Optuna."""

from __future__ import annotations

from typing import Literal, get_args

SamplerName = Literal["structured", "tpe", "gp", "random"]
SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)
