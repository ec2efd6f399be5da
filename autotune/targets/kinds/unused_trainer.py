"""Finds the Trainer that a file of a LightningModule makes for itself, and that autotune does not use."""

from __future__ import annotations

import ast
from pathlib import Path

from autotune.core.records import CheckLine
from autotune.targets.commands.script.syntax import calls
from autotune.targets.loaded import Loaded

NAME = "trainer"  # of the function that returns the Trainer to use


def unused_trainer(loaded: Loaded) -> list[CheckLine]:
    """Return a line of `check` if the file calls `Trainer(...)` and has no `trainer()`; else none.

    Its accumulation, precision and clipping are then not those that are tuned.
    """
    file, names = getattr(loaded.module, "__file__", None), vars(loaded.module)
    try:
        tree = ast.parse(Path(file or "").read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    lines = sorted(call.lineno for call in calls(tree, "Trainer"))
    if not lines or NAME in names:
        return []
    label = loaded.label.partition(":")[0]
    started = label if label.endswith(".py") else f"-m {label}"
    text = f"Trainer(...) in line {lines[0]} of {label} is not used, nor are its arguments and what it is given to fit"
    instead = f"write {NAME}(), or tune the command: autotune check -- python {started}"
    return [CheckLine(name="Trainer", text=text, needs_attention=True, override=instead)]
