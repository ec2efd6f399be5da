"""The base class of switches of torch's that hold for the whole process, and that the user's code may set, too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, Plan, SwitchKnob, allowed
from autotune.knobs.observed import Observed

SET_BY_CODE = "your code sets it"


class TorchSwitch(SwitchKnob):
    """A switch that is set before the user's code runs: what that sets stays, and is not searched (decisions/0060)."""

    @abstractmethod
    def missing(self, circumstances: Circumstances) -> str:
        """Return why it does nothing on this device, as `idle` does."""

    @abstractmethod
    def switch_on(self) -> None:
        """Set it in this process; imports torch."""

    @abstractmethod
    def is_on(self) -> bool | None:
        """Return whether it is on in this process; None if its device is not used here. Imports torch."""

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return what the user's code sets, else both values where it can gain."""
        if circumstances.facts.found.get(self.name):
            return allowed((True,), circumstances.limit)
        return super().domain(circumstances)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that the user's code sets it, or what is missing."""
        return SET_BY_CODE if self.name in circumstances.facts.found else self.missing(circumstances)

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return whether the switch was on; empty if that was not seen."""
        is_on = observed.switches.get(self.name)
        return () if is_on is None else (is_on,)

    def found(self, observed: Observed) -> Value | None:
        """Return True where the user's code sets it."""
        return observed.switches.get(self.name) or None

    def apply(self, value: Value, plan: Plan) -> None:
        """Switch it on for the whole process."""
        if value:
            plan.setup.append(self.switch_on)
