"""The recommendation as the program or file of each framework, found by the framework's name."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from autotune.export.recipe import Recipe
from autotune.knobs.wording import Framework

EMITTERS = {
    Framework.TORCH: "autotune.export.loop",
    Framework.HUGGING_FACE: "autotune.export.huggingface",
    Framework.LIGHTNING: "autotune.export.lightning",
    Framework.ACCELERATE: "autotune.export.accelerate",
    Framework.DEEPSPEED: "autotune.export.deepspeed",
    Framework.TORCHTITAN: "autotune.export.torchtitan",
}


def emitter(framework: Framework) -> ModuleType:
    """Return the module of `framework`: `text(recipe)`, and `values(recipe)` where it takes values."""
    return import_module(EMITTERS[framework])


def exported_text(framework: Framework, found: Recipe) -> str:
    """Return `found` as code or file for `framework`."""
    return str(emitter(framework).text(found))
