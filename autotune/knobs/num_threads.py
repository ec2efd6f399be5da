"""`num_threads`: threads that torch computes with on the CPU, where they compete with the loader's workers."""

from __future__ import annotations

from autotune.knobs.base import (
    LEFT_ALONE,
    Circumstances,
    Knob,
    MemoryEffect,
    Plan,
    allowed,
    check_count,
    parse_count,
)
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.wording import NOTHING, Framework, Wording
from autotune.records import Environment, Value

NONE = ("none", LEFT_ALONE)
# What a count does beyond what the sampler's law says of any: libraries split work in their own ways. A judgement.
STEP = Influence(fixed_time=Factor(1.0, 0.25), sample_time=Factor(1.0, 0.15))


class NumThreads(Knob):
    """None leaves what torch would take; else a count for `torch.set_num_threads`. Offered on the CPU only.

    Threads and workers that do not find a core each slow one another down far beyond their share: two threads with two
    workers on two cores took 187 ms a step where the slower of computing and loading took 22; one thread took 20
    (docs/notes/timing.md 4). More workers and threads than cores may still be fastest, so all pairs are searched.
    """

    name = "num_threads"
    alias = "threads"
    label = "threads"
    ordered = True
    default: Value = None
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

    def check(self, value: Value) -> None:
        """None, or a whole number of at least 1."""
        if value is not None:
            check_count(value, self.name, 1)

    def parse(self, text: str) -> Value:
        """`4`, or `none` for torch's own count."""
        return None if text.lower() in NONE else parse_count(text, self.name, 1)

    def show(self, value: Value) -> str:
        """`4`, `auto`."""
        return LEFT_ALONE if value is None else str(value)

    def phrase(self, value: Value) -> str:
        """`1 torch thread`, or nothing where torch decides."""
        return "" if value is None else f"{value} torch thread{'s' if value != 1 else ''}"

    def caution(self, value: Value) -> float:
        """None is riskier than another."""
        return 0.0

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
