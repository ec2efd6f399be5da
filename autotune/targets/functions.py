"""The target that is a plain file (or module) of functions with agreed names; loads torch only when it is used."""

from __future__ import annotations

from collections.abc import Callable

from autotune.core.records import Config, TargetFacts
from autotune.knobs.base import Plan
from autotune.targets.base import DryTarget, Session
from autotune.targets.reference import Reference, parse


class FunctionTarget:
    """Reads `model`, `dataset` and the other agreed names (see `contract.NAMES`) and runs our training loop."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    @classmethod
    def recognise(cls, reference: str) -> FunctionTarget | None:
        """The target if `reference` looks like a file or a module. Raises `TargetError` if that file is missing."""
        parsed = parse(reference)
        return None if parsed is None else cls(parsed)

    def inspect(self, device: str, config: Config | None, phase: Callable[[str], None]) -> TargetFacts:
        """Find out what the target is, and take one real optimizer step with it."""
        from autotune.targets.inspection import inspect  # torch

        return inspect(self._reference, device, config, phase)

    def open(self, config: Config, plan: Plan, phase: Callable[[str], None]) -> Session:
        """Load and build one training run."""
        from autotune.targets.build import open_session  # torch

        return open_session(self._reference, config, plan, phase)

    def dry(self, config: Config, device: str, phase: Callable[[str], None], *, shapes_vary: bool) -> DryTarget:
        """Load what training without contents needs."""
        from autotune.targets.fake_training import DryFunctions

        return DryFunctions(self._reference, config, device, phase, shapes_vary=shapes_vary)
