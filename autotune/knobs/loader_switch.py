"""The base class of switches of a DataLoader that probes set by themselves where they make the loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, MemoryEffect, Plan, Reach
from autotune.knobs.choice import ChoiceKnob
from autotune.knobs.observed import Observed


class LoaderSwitch(ChoiceKnob):
    """A switch that is None where nobody sets it: then a loader that a probe makes has it on where that can help.

    A loader that the program makes is left as it is. So the value to try beside None is False in the first case, and
    True in the second.
    """

    memory = MemoryEffect.UNSEEN
    reach = Reach.LOADER
    formats: Mapping[str, Mapping[Value, str]] = {"": {True: "true", False: "false"}}
    phrases: ClassVar[tuple[str, str]]  # for off and on, in a sentence

    def other(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return None and the value that differs from it."""
        return (None, True) if circumstances.facts.is_program else (None, False)

    def listed(self, circumstances: Circumstances) -> tuple[Value, ...] | None:
        """Return what the user lists, or only None where there is no such option; None: neither."""
        facts, limit = circumstances.facts, circumstances.limit
        if not facts.tunes_loader or not facts.takes_option(self.name):
            return (None,)
        return limit.values if limit is not None and limit.values is not None else None

    def phrase(self, value: Value) -> str:
        """Return one of `phrases`, or nothing."""
        return "" if value is None else self.phrases[bool(value)]

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return what the training loader had, and None: it may be the program's own."""
        seen = getattr(observed, self.name)
        return () if seen is None else (None, seen)

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the loader's option."""
        if value is not None:
            plan.ask_loader(self.name, value)
