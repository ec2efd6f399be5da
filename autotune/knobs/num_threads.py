"""`num_threads`: threads that torch computes with on the CPU, where they compete with the loader's workers."""

from __future__ import annotations

from autotune.knobs.base import LEFT_ALONE, Circumstances, CountKnob, MemoryEffect, Plan, allowed
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.wording import NOTHING, Framework, Wording
from autotune.records import Environment, Value

# What a count does beyond what the sampler's law says of any: libraries split work in their own ways. A judgement.
STEP = Influence(fixed_time=Factor(1.0, 0.25), sample_time=Factor(1.0, 0.15))


class NumThreads(CountKnob):
    """None leaves what torch would take; else a count for `torch.set_num_threads`. Offered on the CPU only.

    Threads and workers that do not find a core each slow one another down far beyond their share: two threads with two
    workers on two cores took 187 ms a step where the slower of computing and loading took 22; one thread took 20
    (measurement note C4). More workers and threads together than cores may still be fastest, so all pairs are searched.
    """

    name = "num_threads"
    alias = "threads"
    option_help = "Torch's threads on a CPU: 1:8, or 1,2,none."
    label = "threads"
    default: Value = None
    none_is = LEFT_ALONE
    memory = MemoryEffect.NONE  # stacks of threads: next to nothing is touched of each

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """1, 2, 4, ... and all usable cores, None standing for torch's own count among them."""
        environment, limit = circumstances.environment, circumstances.limit
        listed = limit.values if limit is not None else None
        if environment.device_kind != "cpu" and listed is None:
            return (None,)
        cores = environment.usable_cores
        offered = {threads(None, environment), cores, *(1 << exponent for exponent in range(cores.bit_length()))}
        counts = {threads(value, environment) for value in allowed(tuple(offered) if listed is None else listed, limit)}
        return tuple(_shortest(count, environment) for count in sorted(counts))

    def rank(self, value: Value, circumstances: Circumstances) -> float:
        """The count, that of torch for None."""
        return threads(value, circumstances.environment)

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """None for the count that torch takes anyway."""
        return _shortest(values[self.name], circumstances.environment)

    def phrase(self, value: Value) -> str:
        """`1 torch thread`, or nothing where torch decides."""
        return "" if value is None else f"{value} torch thread{'s' if value != 1 else ''}"

    def influence(self, value: Value) -> Influence:
        """Little of its own: what it does follows from how many threads compute."""
        return STEP if value != self.default else NEUTRAL

    def computing_threads(self, value: Value, own: int) -> int | None:
        """The count itself."""
        return value if isinstance(value, int) else own

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """The call itself."""
        return NOTHING if value is None else Wording(setup=(f"torch.set_num_threads({value})",))

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the count for the whole process. Loader workers are not concerned: each computes with one thread."""
        if value is None:
            return

        def limit_threads() -> None:
            import torch

            torch.set_num_threads(int(value))

        plan.setup.append(limit_threads)


def threads(value: Value, environment: Environment) -> int:
    """How many threads `value` stands for; where torch's own number was not recorded, the usable cores."""
    return int(value or environment.default_threads or environment.usable_cores)


def _shortest(value: Value, environment: Environment) -> Value:
    return None if threads(value, environment) == threads(None, environment) else value
