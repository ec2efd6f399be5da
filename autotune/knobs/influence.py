"""How a knob may act on the clocks and the memory of a training run: what the structured sampler expects beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.records import Value


@dataclass(frozen=True)
class Factor:
    """A multiplication, not known exactly: log-normal around `center`.

    `spread` is the standard deviation of its logarithm; 0.3 says that two values in three lie within a third of
    `center`. A spread of 0 is a certainty, and by default the certainty that nothing is multiplied.
    """

    center: float = 1.0
    spread: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Influence:
    """What one value of a knob multiplies, against the value `relative_to` of the same knob.

    Values of an ordered knob are always taken against their next lower neighbour: what acts grows step by step.
    A micro-batch of b samples takes fixed_time + sample_time * b seconds and fixed_memory + sample_memory * b bytes;
    loading_time is what one worker takes to load one sample. crowding is the time for which computing on a CPU stands
    still while workers want the cores of its threads, in units of the time that loading takes; it acts there only.
    """

    fixed_time: Factor = Factor()
    sample_time: Factor = Factor()
    fixed_memory: Factor = Factor()
    sample_memory: Factor = Factor()
    loading_time: Factor = Factor()
    crowding: Factor = Factor()
    relative_to: Value = None  # None: the knob's default

    @property
    def trades_time_for_memory(self) -> bool:
        """Whether every sample takes longer and needs less: never faster than without, where that fits."""
        return self.sample_time.center > 1 and self.fixed_time.center >= 1 and self.sample_memory.center < 1


NEUTRAL = Influence()
# Of a knob that says nothing: it may act on everything but crowding, and what it does is learned from its probes. The
# spreads are judgements: wide enough to let a quarter more or less surprise nobody, narrow enough not to be tried for
# its own sake.
UNKNOWN = Influence(
    fixed_time=Factor(1.0, 0.25),
    sample_time=Factor(1.0, 0.25),
    fixed_memory=Factor(1.0, 0.1),
    sample_memory=Factor(1.0, 0.1),
    loading_time=Factor(1.0, 0.15),
)
