"""The base class of knobs whose values are None, which leaves things as they are, or one of a few others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import Value
from autotune.knobs.base import LEFT_ALONE, Knob

NONE = ("none", LEFT_ALONE)


class ChoiceKnob(Knob):
    """A knob that is None by default; `choices` are the other values, each with what a table shows for it."""

    ordered = False
    default: Value = None
    choices: ClassVar[Mapping[Value, str]]

    def check(self, value: Value) -> None:
        """Raise `ValueError` unless it is None or one of `choices`."""
        if value is None or any(type(value) is type(one) and value == one for one in self.choices):  # 1 is not True
            return
        words = ", ".join(f'"{one}"' if isinstance(one, str) else str(one) for one in self.choices)
        raise ValueError(f"{self.name} must be {words} or None, got {value!r}")

    def parse(self, text: str) -> Value:
        """Return the value that was typed, as it is written or shown, or None for `none`. Raises `ValueError`."""
        if text.lower() in NONE:
            return None
        for value, shown in self.choices.items():
            if text.lower() in (str(value).lower(), shown):
                return value
        self.check(text)
        return text

    def show(self, value: Value) -> str:
        """Return the value as shown in tables: its text in `choices`, or `auto`."""
        return LEFT_ALONE if value is None else self.choices[value]

    def caution(self, value: Value) -> float:
        """Return 1 unless the value is None."""
        return 0.0 if value is None else 1.0
