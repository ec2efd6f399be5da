"""Finds the batch size, precision and data-loading settings that train a PyTorch model fastest on this machine.

    autotune.search("model.py")              run a search, as `autotune search` does
    autotune.race("old.py", "new.py")        which one trains faster, as `autotune race` says
    autotune.load_best("studies/model")      the recommended setting of each knob, as a plain dict
    autotune.load_result("studies/model")    the same with all of its evidence
    autotune.apply("studies/model")          the dict, able to set up a training loop
    autotune.step(loss=loss, samples=n)      reports one optimizer step, for loops that nothing else can observe

Importing this package imports neither torch nor Optuna.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from autotune.telling import step

if TYPE_CHECKING:
    from autotune.api import race, search
    from autotune.context.reporter import SilentReporter
    from autotune.errors import (
        AutotuneError,
        EnvironmentMismatch,
        EnvironmentUnfit,
        NoRecommendation,
        RaceFailed,
        StudyError,
        StudyNotFound,
        TargetError,
        UsageError,
    )
    from autotune.export.torch import Tuned, apply
    from autotune.races.records import RaceResult
    from autotune.study.recommendation import Recommendation, load_best, load_result
    from autotune.targets.checkpointing import checkpoint_blocks
    from autotune.targets.compiling import compile_model

_HOMES = {
    "search": "autotune.api",
    "race": "autotune.api",
    "RaceResult": "autotune.races.records",
    "SilentReporter": "autotune.context.reporter",
    "load_best": "autotune.study.recommendation",
    "load_result": "autotune.study.recommendation",
    "Recommendation": "autotune.study.recommendation",
    "apply": "autotune.export.torch",
    "Tuned": "autotune.export.torch",
    "checkpoint_blocks": "autotune.targets.checkpointing",
    "compile_model": "autotune.targets.compiling",
    "AutotuneError": "autotune.errors",
    "EnvironmentMismatch": "autotune.errors",
    "EnvironmentUnfit": "autotune.errors",
    "NoRecommendation": "autotune.errors",
    "RaceFailed": "autotune.errors",
    "StudyError": "autotune.errors",
    "StudyNotFound": "autotune.errors",
    "TargetError": "autotune.errors",
    "UsageError": "autotune.errors",
}

__all__ = [
    "AutotuneError",
    "EnvironmentMismatch",
    "EnvironmentUnfit",
    "NoRecommendation",
    "RaceFailed",
    "RaceResult",
    "Recommendation",
    "SilentReporter",
    "StudyError",
    "StudyNotFound",
    "TargetError",
    "Tuned",
    "UsageError",
    "apply",
    "checkpoint_blocks",
    "compile_model",
    "load_best",
    "load_result",
    "race",
    "search",
    "step",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
