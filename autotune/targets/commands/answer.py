"""The recommendation of a command as a command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.core.records import Value
from autotune.harmless import shell_word
from autotune.knobs import KNOBS
from autotune.targets.commands.command import ACCUMULATION, Command, is_command


@dataclass(frozen=True, kw_only=True)
class RecommendedCommand:
    """The command that a person runs instead of the one that was searched."""

    words: tuple[str, ...]
    variables: Mapping[str, str]  # environment variables, to be set for it
    unset: tuple[str, ...]  # settings that it has no argument for: the script has to say them

    @property
    def text(self) -> str:
        """The line for a shell, with its variables before it."""
        return " ".join((*(f"{name}={shell_word(value)}" for name, value in self.variables.items()), self.line))

    @property
    def missing(self) -> str:
        """The sentence on the settings that the script has to say; empty where the command says all."""
        it = "it" if len(self.unset) == 1 else "them"
        return f"The command has no argument for {', '.join(self.unset)}: set {it} in the script." if self.unset else ""

    @property
    def line(self) -> str:
        """The words for a shell, without what comes before them."""
        return shlex.join(self.words)


def recommended_command(
    target: str, params: Mapping[str, Value], baseline: Mapping[str, Value]
) -> RecommendedCommand | None:
    """Return the command `target` with the settings `params`, by knob name; None for a target that is no command."""
    if not is_command(target):
        return None
    command, variables, unset = Command.parse(target), dict[str, str](), []
    for knob in KNOBS:
        if knob.name in command.knobs or (knob.name == ACCUMULATION and command.derives_accumulation):
            continue
        value = params[knob.name]
        set_outside = knob.environ_outside(value)
        variables.update(set_outside)
        if not set_outside and value != baseline[knob.name]:
            unset.append(f"{knob.name} {knob.show(value)}")
    return RecommendedCommand(words=tuple(command.recommended(params)), variables=variables, unset=tuple(unset))
