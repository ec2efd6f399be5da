"""The base class of switches of a DataLoader that probes set by themselves where they make the loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import TargetFacts, Value
from autotune.knobs.base import Circumstances, MemoryEffect, Plan, Reach
from autotune.knobs.choice_knob import ChoiceKnob
from autotune.knobs.num_workers import NO_LOADER
from autotune.knobs.observed import Observed


class LoaderSwitch(ChoiceKnob):
    """A switch that is None if it is not set: then a loader that a probe makes has it on where that can help.

    A loader that the program makes is left as it is. So the value to try besides None is False in the first case, and
    True in the second.
    """

    memory = MemoryEffect.UNSEEN
    reach = Reach.LOADER
    formats: Mapping[str, Mapping[Value, str]] = {"": {True: "true", False: "false"}}
    phrases: ClassVar[tuple[str, str]]  # for off and on, in a sentence

    def other(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return None and the value that differs from it."""
        return (None, True) if circumstances.facts.is_program else (None, False)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that there is no loader that takes it."""
        return no_option(self.name, circumstances.facts)

    def phrase(self, value: Value) -> str:
        """Return the value in words, one of `phrases`; empty if it needs none."""
        return "" if value is None else self.phrases[bool(value)]

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return what the training loader had, and None: it may be the program's own."""
        seen = getattr(observed, self.name)
        return () if seen is None else (None, seen)

    def apply(self, value: Value, plan: Plan) -> None:
        """Ask for the option of the training's DataLoader, if there is a value."""
        if value is not None:
            plan.ask_loader(self.name, value)


def no_option(name: str, facts: TargetFacts) -> str:
    """Return why an option of a DataLoader does nothing for a target, whatever its value; empty if it may."""
    if not facts.tunes_loader:
        return NO_LOADER
    return "" if facts.takes_option(name) else f"dataloader() takes no {name}"
