"""Finds the knob that the name of an argument means."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autotune.errors import TargetError
from autotune.knobs import KNOBS
from autotune.knobs.base import Knob
from autotune.knobs.parsing import heading_hint
from autotune.targets.commands.placeholder import NAMES, OUTPUT_DIR, owner_of
from autotune.targets.commands.script.argument_names import NEGATIVE, is_negative, normal

OUTPUTS = r"(output|out|save|work|results?|log|default_root)_?(dir|folder)|outf|hydra\.run\.dir"
NOT_TRAINING = frozenset({"eval", "evaluation", "val", "valid", "validation", "test", "predict", "infer", "inference"})


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The meaning of an argument: the knob that it sets, and how."""

    name: str  # of the placeholder: a knob's, a switch's or OUTPUT_DIR
    knob: Knob | None = None  # None: OUTPUT_DIR
    format: str = ""  # that the user asked for
    is_doubtful: bool = False
    is_negated: bool = False  # the argument switches it off
    is_gate: bool = False  # a flag that says whether there is a value; another argument says which

    @property
    def owner(self) -> str:
        """The name of the knob that it sets, or OUTPUT_DIR."""
        return self.knob.name if self.knob is not None else self.name

    @property
    def is_switch(self) -> bool:
        """Whether it switches one value of the knob on or off."""
        return self.knob is not None and self.name in self.knob.value_names

    @property
    def is_of_step(self) -> bool:
        """Whether it may set the batch of an optimizer step, from which a script derives its accumulation."""
        return self.is_doubtful and self.name == "batch_size"

    @property
    def is_truth(self) -> bool:
        """Whether it takes yes or no, so that it can be a flag."""
        return self.is_switch or self.is_gate or (self.knob is not None and self.knob.is_truth)


def meaning_of(name: str) -> Meaning | None:
    """Return the meaning of an argument by its name alone; None: it means no knob."""
    whole = normal(name)
    *context, last = whole.split(".")
    if NOT_TRAINING & {part for one in context for part in re.split(r"[_/@]", one)}:
        return None
    if re.fullmatch(OUTPUTS, last) or re.fullmatch(OUTPUTS, whole):
        return Meaning(name=OUTPUT_DIR)
    affirmed, is_negated = NEGATIVE.sub("", last), is_negative(last)
    for knob in KNOBS:
        switch = re.sub(r"^(use|enable)_", "", affirmed)
        if switch in knob.value_names:
            return Meaning(name=switch, knob=knob, is_negated=is_negated)
        for pattern, is_doubtful in ((knob.arguments, False), (knob.doubtful, True)):
            if pattern and re.fullmatch(pattern, affirmed if knob.is_truth or is_doubtful else last):
                return Meaning(name=knob.name, knob=knob, is_doubtful=is_doubtful, is_negated=is_negated)
    return None


def meant(key: str) -> Meaning:
    """Return the meaning that the left side of a correction (`--map KEY=...`) names. Raises `TargetError`."""
    name, _, format_name = key.partition(":")
    if name == OUTPUT_DIR:
        return Meaning(name=OUTPUT_DIR)
    if knob := owner_of(name):
        is_switch = name in knob.value_names
        return Meaning(name=name if is_switch else knob.name, knob=knob, format="" if is_switch else format_name)
    hint = heading_hint(name) or f"It was probably mistyped. There are {', '.join(NAMES)}."
    raise TargetError(f"--map {key}=...: there is no knob {name}. {hint}")
