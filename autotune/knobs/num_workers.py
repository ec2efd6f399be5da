"""`num_workers`: processes of the DataLoader, with the options that go with them."""

from __future__ import annotations

from autotune.knobs.base import Circumstances, CountKnob, MemoryEffect, Plan, allowed
from autotune.knobs.influence import NEUTRAL, Influence
from autotune.records import Limit, Value

MOST = 32  # steps of two beyond sixteen; PyTorch itself warns above the number of cores
PREFETCH = 2  # batches prepared ahead by each worker: DataLoader's default, written down because it is part of the run


class NumWorkers(CountKnob):
    """0, 1, 2, 4, 8, ... up to the cores that this process may use, and that number itself."""

    name = "num_workers"
    alias = "workers"
    option_help = "Loader workers: 0:8, or 0,2,4."
    label = "workers"
    default: Value = 0
    least = 0
    memory = MemoryEffect.GROWS_HOST
    counts_workers = True

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Only 0 where there is no loader that is told. A user's range may exceed the cores: waiting needs none."""
        if not circumstances.facts.tunes_workers:
            return (0,)
        limit = circumstances.limit or Limit()
        cores = min(circumstances.environment.usable_cores, MOST)
        most = limit.high if limit.high is not None else cores
        ladder = {0, *(1 << exponent for exponent in range(8)), min(most, 128)}
        return allowed(tuple(sorted(count for count in ladder if count <= most)), limit)

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """0 where nobody is told."""
        return values[self.name] if circumstances.facts.tunes_workers else 0

    def phrase(self, value: Value) -> str:
        """`4 workers`."""
        return {0: "no loader workers", 1: "1 loader worker"}.get(int(value or 0), f"{value} loader workers")

    def caution(self, value: Value) -> float:
        """Fewer processes, less trouble."""
        return float(value or 0)

    def influence(self, value: Value) -> Influence:
        """The model's own variable."""
        return NEUTRAL

    def apply(self, value: Value, plan: Plan) -> None:
        """Workers persist and prefetch only if there are any (DataLoader refuses otherwise); CUDA copies pinned."""
        plan.loader_options["num_workers"] = value
        plan.loader_options["pin_memory"] = plan.device.startswith("cuda")
        if value:
            plan.loader_options["persistent_workers"] = True
            plan.loader_options["prefetch_factor"] = PREFETCH
