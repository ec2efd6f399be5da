"""`num_threads`: threads that torch computes with on the CPU, where they compete with the loader's workers."""

from __future__ import annotations

from autotune.core.records import Environment, Value
from autotune.knobs.base import LEFT_ALONE, Circumstances, CountKnob, MemoryEffect, Plan, Reach, allowed
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.observed import Observed
from autotune.knobs.wording import NOTHING, Framework, Wording

# The effect of a count beyond the performance model's: libraries split work in their own ways. A judgement.
STEP = Influence(fixed_time=Factor(1.0, 0.25), sample_time=Factor(1.0, 0.15))


class NumThreads(CountKnob):
    """A count for `torch.set_num_threads`, or None for torch's own. Offered on the CPU only.

    Where threads and workers outnumber the cores they slow one another down: two threads with two workers on two cores
    took 187 ms a step, one thread 20 (docs/notes/timing.md 4). Such pairs may still be fastest, so all are searched.
    """

    name = "num_threads"
    alias = "threads"
    option_help = "Torch's threads on a CPU: 1:8, or 1,2,none."
    label = "threads"
    default: Value = None
    none_is = LEFT_ALONE
    arguments = r"(torch_)?num_threads|num_cpu_threads_per_process"  # the latter of Accelerate
    memory = MemoryEffect.NONE  # a thread uses almost nothing of its stack
    only_computes = True
    reach = Reach.PROCESS

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return 1, 2, 4, ... and all usable cores, with None for torch's own count."""
        environment, limit = circumstances.environment, circumstances.limit
        listed = limit.values if limit is not None else None
        if environment.device_kind != "cpu" and listed is None:
            return (None,)
        cores = environment.usable_cores
        offered = {threads(None, environment), cores, *(1 << exponent for exponent in range(cores.bit_length()))}
        counts = {threads(value, environment) for value in allowed(tuple(offered) if listed is None else listed, limit)}
        return tuple(_shortest(count, environment) for count in sorted(counts))

    def position(self, value: Value, circumstances: Circumstances) -> float:
        """Return the count, torch's own for None."""
        return threads(value, circumstances.environment)

    def canonical(self, values: dict[str, Value], circumstances: Circumstances) -> Value:
        """Return the value, or None if it is torch's own count."""
        return _shortest(values[self.name], circumstances.environment)

    def phrase(self, value: Value) -> str:
        """Return such as `1 torch thread`; empty for torch's own count."""
        return "" if value is None else f"{value} torch thread{'s' if value != 1 else ''}"

    def influence(self, value: Value) -> Influence:
        """Return little: the performance model knows the effect of the number of threads."""
        return STEP if value != self.default else NEUTRAL

    def computing_threads(self, value: Value, own: int) -> int | None:
        """Return the threads that compute: the value, or the process's `own` count for None."""
        return value if isinstance(value, int) else own

    def environ_outside(self, value: Value) -> dict[str, str]:
        """Return the variable that torch takes its count from when it is imported."""
        return {} if value is None else {"OMP_NUM_THREADS": str(value)}

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the call of `torch.set_num_threads`; nothing for None."""
        return NOTHING if value is None else Wording(setup=(f"torch.set_num_threads({value})",))

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return the count, and None: it may be torch's own."""
        return () if observed.threads is None else (None, observed.threads)

    def apply(self, value: Value, plan: Plan) -> None:
        """Set the count for the whole process. It does not affect loader workers: each computes with one thread."""
        if value is None:
            return

        def limit_threads() -> None:
            import torch

            torch.set_num_threads(int(value))

        plan.setup.append(limit_threads)


def threads(value: Value, environment: Environment) -> int:
    """Return the count that `value` stands for; where torch's own was not recorded, the usable cores."""
    return int(value or environment.default_threads or environment.usable_cores)


def _shortest(value: Value, environment: Environment) -> Value:
    return None if threads(value, environment) == threads(None, environment) else value
