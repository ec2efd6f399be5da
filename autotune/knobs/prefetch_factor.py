"""`prefetch_factor`: batches that each worker of the loader prepares ahead."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.core.records import Value
from autotune.knobs.base import LEFT_ALONE, Circumstances, CountKnob, MemoryEffect, Plan, Reach, allowed
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.loader_switch import no_option
from autotune.knobs.num_workers import DEFAULT_PREFETCH, NO_WORKERS
from autotune.knobs.observed import Observed

ACCELERATED: tuple[Value, ...] = (None, 4)
ON_REQUEST: tuple[Value, ...] = (1, None, 4, 8, 16)
# More batches ahead even out samples that take differently long, and change nothing else (decisions/0059). A judgement.
LONGER = Influence(loading_time=Factor(0.98, 0.05))


class PrefetchFactor(CountKnob):
    """A count, or None for DataLoader's own, which is 2. It means nothing without workers.

    Offered where an accelerator computes while workers load. On a CPU they compete for the same cores, and a longer
    queue changes nothing: there it is searched where the user says what it may be.
    """

    name = "prefetch_factor"
    alias = "prefetch"
    option_help = "Batches that each loader worker prepares ahead: 1:8, or none,4."
    label = "prefetch"
    default: Value = None
    none_is = LEFT_ALONE
    memory = MemoryEffect.GROWS_HOST
    reach = Reach.LOADER
    arguments = r"((train_)?data_?)?(loader_?)?prefetch_factor"

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return None and 4 beside an accelerator; what a user asks for from 1 to 16, or as listed."""
        facts, limit = circumstances.facts, circumstances.limit
        if limit is not None and limit.values is not None:
            return limit.values
        if no_option(self.name, facts):
            return (None,)
        if limit is None:
            return ACCELERATED if circumstances.environment.device_kind != "cpu" and facts.tunes_workers else (None,)
        counts = allowed(tuple(DEFAULT_PREFETCH if value is None else value for value in ON_REQUEST), limit)
        return tuple(None if count == DEFAULT_PREFETCH else count for count in counts)

    def position(self, value: Value, circumstances: Circumstances) -> float:
        """Return the count, DataLoader's own for None."""
        return self.size(value)

    def size(self, value: Value) -> float:
        """Return the batches that each worker holds ready, DataLoader's own count for None: memory grows with them."""
        return float(DEFAULT_PREFETCH if value is None else value)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that there is no loader that takes it, or that it has no workers."""
        return no_option(self.name, circumstances.facts) or ("" if values["num_workers"] else NO_WORKERS)

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """Return None for DataLoader's own count, unless a command says that today."""
        found = super().canonical(values, circumstances)
        return None if found == DEFAULT_PREFETCH and self.left_alone(circumstances.facts) is None else found

    def phrase(self, value: Value) -> str:
        """Return such as `4 batches ahead of each worker`; empty for DataLoader's own count."""
        return "" if value is None else f"{value} batch{'es' if value != 1 else ''} ahead for each worker"

    def caution(self, value: Value) -> float:
        """Return how many more than DataLoader's own wait in memory."""
        return float(max(0, int(value or DEFAULT_PREFETCH) - DEFAULT_PREFETCH))

    def influence(self, value: Value) -> Influence:
        """Return hardly anything: it evens out, and makes no sample cheaper."""
        return NEUTRAL if value is None else LONGER

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return the count of the training loader's workers, and None: it may be the program's own."""
        if not observed.workers:
            return () if observed.workers is None else (None,)
        return (None, observed.prefetch_factor)

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the loader's option, if it has workers (DataLoader refuses it otherwise)."""
        if value is not None and plan.loader_options.get("num_workers"):
            plan.ask_loader(self.name, value)
