"""The recommendation for a target that is a command: the command to run instead."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.core.records import TargetFacts, Value
from autotune.harmless import python, shell_word
from autotune.knobs import KNOBS
from autotune.knobs.training_arguments import in_all_versions, rewritten
from autotune.targets.commands.command import ACCUMULATION, Command, is_command
from autotune.targets.commands.hygiene import python_path
from autotune.targets.commands.injected.autotune_hooks import ARGUMENTS_VARIABLE


@dataclass(frozen=True, kw_only=True)
class RecommendedCommand:
    """The command that a person runs instead of the one that was searched."""

    words: tuple[str, ...]
    variables: Mapping[str, str]  # environment variables, to be set for it
    unset: tuple[str, ...]  # settings without a known argument of the command: the script must set them
    written: Mapping[str, Any]  # changed arguments of the TrainingArguments that the script writes

    @property
    def environ(self) -> dict[str, str]:
        """All variables of the process that `autotune run` starts, including the one that changes TrainingArguments."""
        told = {"PYTHONPATH": python_path(), ARGUMENTS_VARIABLE: json.dumps(in_all_versions(self.written))}
        return {**self.variables, **(told if self.written else {})}

    @property
    def text(self) -> str:
        """The line for a shell, with its variables before it."""
        return " ".join((*(f"{name}={shell_word(value)}" for name, value in self.variables.items()), self.line))

    @property
    def unsaid(self) -> str:
        """A sentence on settings for which no argument of the command is known; empty if there are none."""
        it, unset = "it" if len(self.unset) == 1 else "them", ", ".join(self.unset)
        return f"autotune knows no argument of the command for {unset}: set {it} in the script." if unset else ""

    @property
    def missing(self) -> str:
        """All sentences on settings that the script must set; empty if there are none."""
        written = f"Write in the script: TrainingArguments(..., {', '.join(self.arguments)})." if self.written else ""
        return " ".join(filter(None, (written, self.unsaid)))

    @property
    def arguments(self) -> list[str]:
        """Return the changes to the script's TrainingArguments, as Python; empty: it writes none, or the best ones."""
        return [f"{name}={python(value)}" for name, value in self.written.items()]

    @property
    def line(self) -> str:
        """The words for a shell, without variables."""
        return shlex.join(self.words)


def recommended_command(
    target: str, params: Mapping[str, Value], baseline: Mapping[str, Value], facts: TargetFacts | None = None
) -> RecommendedCommand | None:
    """Return the command `target` with the settings `params`, by knob name; None for a target that is no command.

    `facts` of the target have the arguments that its script writes; None: the study is of an earlier version.
    """
    if not is_command(target):
        return None
    command, variables, unset = Command.parse(target), dict[str, str](), []
    names = () if facts is None else facts.written
    for knob in KNOBS:
        if knob.name in (*command.knobs, *names) or (knob.name == ACCUMULATION and command.derives_accumulation):
            continue
        value = params[knob.name]
        set_outside = knob.environ_outside(value)
        variables.update(set_outside)
        if not set_outside and value != baseline[knob.name]:
            unset.append(f"{knob.name} {knob.show(value)}")
    today, best = ({name: values[name] for name in names} for values in (baseline, params))
    return RecommendedCommand(
        words=tuple(command.recommended(params)), variables=variables, unset=tuple(unset),
        written=rewritten(best, today),
    )  # fmt: skip
