"""`num_workers`: processes of the DataLoader, with the options that go with them."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.core.records import Limit, Value
from autotune.knobs.base import Circumstances, CountKnob, MemoryEffect, Plan, Reach, allowed
from autotune.knobs.influence import NEUTRAL, Influence
from autotune.knobs.observed import Observed

MOST_WORKERS = 32  # PyTorch itself warns above the number of cores
NO_LOADER = "the batches are synthetic"  # why an option of a loader does nothing
NO_WORKERS = "there are no loader workers"
# Batches prepared ahead by each worker: DataLoader's default, written down because it is part of the run.
DEFAULT_PREFETCH = 2


class NumWorkers(CountKnob):
    """0, 1, 2, 4, 8, ... up to the number of usable cores, and that number itself."""

    name = "num_workers"
    alias = "workers"
    option_help = "Loader workers: 0:8, or 0,2,4."
    label = "workers"
    default: Value = 0
    least = 0
    memory = MemoryEffect.GROWS_HOST
    counts_workers = True
    arguments = (
        r"((train_)?data_?)?(loader_?)?((num|n)_?)?((data_?)?(loader_?)?|cpu_?)workers|workers_per_(gpu|device|rank)|"
        r"((num|n)_?)?(data|(data_?)?loader)_?(jobs|proc(esse)?s)"
    )
    doubtful = r"((num|n)_?)?jobs"  # of a loader, or of preprocessing
    reach = Reach.LOADER

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return only 0 where no loader takes workers, and at most 1 where each would repeat the others' samples.

        What a user asks for may exceed the cores, and repeat samples.
        """
        if not circumstances.facts.tunes_workers:
            return (0,)
        if circumstances.facts.repeats_samples and circumstances.limit is None:
            return (0, 1)
        limit = circumstances.limit or Limit()
        cores = min(circumstances.environment.usable_cores, MOST_WORKERS)
        most = limit.high if limit.high is not None else cores
        ladder = {0, *(1 << exponent for exponent in range(8)), min(most, 128)}
        return allowed(tuple(sorted(count for count in ladder if count <= most)), limit)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return that no loader takes workers; empty if one does."""
        if not circumstances.facts.tunes_loader:
            return NO_LOADER
        return "" if circumstances.facts.takes_workers else "dataloader() takes no num_workers"

    def phrase(self, value: Value) -> str:
        """Return the value in words, such as `4 loader workers`."""
        return {0: "no loader workers", 1: "1 loader worker"}.get(int(value or 0), f"{value} loader workers")

    def caution(self, value: Value) -> float:
        """Return their number: fewer processes are less risk."""
        return float(value or 0)

    def influence(self, value: Value) -> Influence:
        """Return nothing: it is a variable of the performance model itself."""
        return NEUTRAL

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return the workers of the training loader."""
        return () if observed.workers is None else (observed.workers,)

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the loader's options; those of workers only if there are any (DataLoader refuses otherwise)."""
        plan.loader_options["num_workers"] = value
        plan.loader_options["pin_memory"] = plan.device.startswith("cuda")
        if value:
            plan.loader_options["persistent_workers"] = True
            plan.loader_options["prefetch_factor"] = DEFAULT_PREFETCH
