"""`persistent_workers`: whether the workers of the loader stay when an epoch ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, Plan, allowed
from autotune.knobs.influence import NEUTRAL, Influence
from autotune.knobs.loader_switch import LoaderSwitch, no_option
from autotune.knobs.num_workers import NO_WORKERS
from autotune.knobs.observed import Observed


class PersistentWorkers(LoaderSwitch):
    """True or False, or None: workers of a probe's loader stay, as they always have. It means nothing without workers.

    Searched on request only. Workers that stay are never slower, and what starting others costs shows only where epochs
    are so short that a probe sees one end (decisions/0059). False is for data that the main process changes between
    epochs, which workers that stay do not see.
    """

    name = "persistent_workers"
    alias = "persistent_workers"
    option_help = "Loader workers that stay between epochs: none,true,false."
    label = "persist"
    on_request = True
    choices: ClassVar[Mapping[Value, str]] = {True: "stay", False: "restart"}
    phrases = ("workers started for each epoch", "workers that stay between epochs")
    arguments = r"((train_)?data_?)?(loader_?)?persistent_workers"

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return both, or what the user lists; only None where no loader takes it."""
        is_none = bool(no_option(self.name, circumstances.facts))
        return allowed((None,) if is_none else self.other(circumstances), circumstances.limit)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that there is no loader that takes it, or that it has no workers."""
        return super().idle(values, circumstances) or ("" if values["num_workers"] else NO_WORKERS)

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """Return None for what a loop of ours does by itself; what a program is given stays."""
        found = super().canonical(values, circumstances)
        return found if circumstances.facts.is_program or not found else None

    def influence(self, value: Value) -> Influence:
        """Return nothing: within an epoch it changes nothing."""
        return NEUTRAL

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return what the training loader had, and None: it may be the program's own."""
        return (None,) if observed.workers == 0 else super().seen(observed)

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the loader's option, if it has workers (DataLoader refuses it otherwise)."""
        if plan.loader_options.get("num_workers"):
            super().apply(value, plan)
