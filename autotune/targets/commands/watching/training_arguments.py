"""Tunes settings that a script writes into its own `TrainingArguments`, by changing the object as the script makes it.

    TrainingArguments(...) or a subclass ─► __post_init__ ─► what the script wrote, with the knobs that differ from it

A setting that is not to be changed stays as written, with all its consequences. If the command has the arguments of
TrainingArguments, these set the values, and nothing is done here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from autotune.core.records import Config, Value
from autotune.knobs.base import Knob
from autotune.knobs.observed import Observed
from autotune.knobs.training_arguments import RECOMPUTE, in_a_script, in_all_versions, rewritten
from autotune.targets.commands.command import Command
from autotune.targets.commands.hygiene import output_folder
from autotune.targets.commands.injected.autotune_hooks import ARGUMENTS_MODULE, Finder, change_arguments

OWN_ARGUMENT = "per_device_train_batch_size"  # of a command that makes its TrainingArguments from its arguments


class ScriptArguments:
    """The TrainingArguments that a script makes; if several, the last ones before its first step."""

    def __init__(self, command: Command, config: Config | None, settable: tuple[str, ...] | None) -> None:
        """`config` is the one to run; None: the script's own. `settable`: names of knobs that can be set."""
        self.uses_cpu = False
        # The script's values in TrainingArguments of knobs that no command argument sets, by knob name.
        self.values: dict[str, Value] = {}
        self._command = command
        self._config, self._settable = config, settable

    @property
    def asked(self) -> dict[str, Value]:
        """The values to set there, by knob name, without those that cannot be set; empty without a configuration."""
        if self._config is None or self._settable is None:
            return {}
        return {name: self._config[name] for name in self.values if name in self._settable}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Change every TrainingArguments object made until the end, without importing transformers."""
        ends: list[Callable[[], None]] = []
        if self._command.says(OWN_ARGUMENT):
            yield
            return
        finder = Finder(ARGUMENTS_MODULE, lambda module: ends.append(change_arguments(module, self._change)))
        if (module := sys.modules.get(ARGUMENTS_MODULE)) is not None:
            ends.append(change_arguments(module, self._change))
        else:
            sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            if finder in sys.meta_path:
                sys.meta_path.remove(finder)
            for end in ends:
                end()

    def can_set(self, knob: Knob, seen: Observed, model: Any) -> bool:
        """Return whether they can set this knob: their value is the observed one, and the model supports it."""
        if knob.name not in self.values or self.values[knob.name] not in knob.seen(seen):
            return False
        return knob.name != RECOMPUTE or _can_recompute(model)

    def _change(self, arguments: Any) -> Mapping[str, Any]:
        self.uses_cpu = getattr(arguments, "use_cpu", False)
        written = in_a_script(arguments)
        self.values = {name: value for name, value in written.items() if name not in self._command.knobs}
        folder = {} if self._command.takes_output_dir else {"output_dir": str(output_folder())}
        return folder | in_all_versions(rewritten(self.values | self.asked, self.values))


def _can_recompute(model: Any) -> bool:
    """Return whether transformers can recompute this model; if not, a Trainer that is asked to fails (5.23)."""
    return bool(getattr(model, "supports_gradient_checkpointing", False))
