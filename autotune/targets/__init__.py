"""Targets: `resolve` returns the target of a reference to training code, which only a child process opens.

text ─► TargetPlace ─► its module, imported ─► kinds/ ─► a Contract, which our loop trains
                   │                                 └─► an OwnLoop, which trains by itself
                   └─► a command ─► commands/ ─────────► another, which is run as it is
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.core.records import Config, Declaration, TargetFacts
from autotune.errors import TargetError
from autotune.knobs.base import Plan
from autotune.targets.base import Session, ShapeRunTarget
from autotune.targets.reference import TargetPlace, parse


@dataclass(frozen=True)
class Target:
    """Training code that is named and not yet imported. Its methods import torch and the user's code."""

    reference: TargetPlace

    def inspect(
        self, device: str, config: Config | None, phase: Callable[[str], None], declared: Sequence[Declaration] = (),
        *, lasts: bool = False,
    ) -> TargetFacts:  # fmt: skip
        """Return the facts of the target, after one real step. `phase` is called with `load`, `build` and `warm-up`.

        `declared` are knobs of the user's own besides those of the target's `space`. With `lasts` a command must train
        for as long as a probe needs at least. Raises `TargetError`.
        """
        from autotune.targets.inspection import inspect

        return inspect(self.reference, device, config, phase, declared, lasts=lasts)

    def open(self, config: Config, plan: Plan, phase: Callable[[str], None]) -> Session:
        """Load and build one training run. Raises `TargetError`."""
        from autotune.targets.build import open_session

        return open_session(self.reference, config, plan, phase)

    def shape_run(
        self, config: Config, device: str, phase: Callable[[str], None], *, shapes_vary: bool
    ) -> ShapeRunTarget:
        """Load the target to predict its memory. `shapes_vary`: a probe saw batches of different shapes.

        Raises `TargetError`, also for a loop that cannot be run on tensors without contents.
        """
        from autotune.targets.fake_training import ShapeRunFunctions

        return ShapeRunFunctions(self.reference, config, device, phase, shapes_vary=shapes_vary)


def resolve(reference: str) -> Target:
    """Return the target of `reference`: `path.py`, `pkg.train`, either with `:attribute`, or `-- python train.py ...`.

    Paths and modules are looked up from the working folder. Imports neither torch nor the user's code; raises
    `TargetError` for any other text, and for a missing file.
    """
    parsed = parse(reference)
    if parsed is None:
        raise TargetError(
            f"{reference!r} is neither a Python file nor a module. A target is a file of functions such as model.py, a "
            f"module such as pkg.train, or one function in it such as model.py:build. Write model() and dataset() into "
            f"a file, and name that file."
        )
    return Target(parsed)
